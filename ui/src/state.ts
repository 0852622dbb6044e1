// What is asked, as the address has it: a reader who gets the address asks the same.

export interface Change {
  target: string;
  key: string;
  value: string;
}
export interface View {
  input: string;
  serve: string;
  from: string;
  to: string;
  // What is being changed, and the variants that are pinned beside it, as texts.
  draft: Change[];
  pins: string[];
  schedulers: string[];
  // Whose numbers are drawn, and which row's lines are shown.
  subject: string;
  // What is searched for, and in which settings.
  goal: string;
  keep: string;
  space: string[];
  // A second recording below this one.
  with: string;
  // The lesson of the course that the input belongs to.
  lesson: string;
  // The scheduler that models the kernel of a recording, where its header does not tell.
  recorded: string;
}
export const EMPTY: View = { input: "", serve: "", from: "", to: "", draft: [], pins: [], schedulers: [], subject: "", goal: "", keep: "", space: [], with: "", lesson: "", recorded: "" };

export const quoted = (target: string) => (/[\s;]/.test(target) ? '"' + target + '"' : target);

// A variant as `schedlab compare --variant` takes it: clauses in the order in which their targets were first changed.
export function variant(changes: Change[]): string {
  const targets = [...new Set(changes.map((one) => one.target))];
  const clause = (target: string) => quoted(target) + changes.filter((one) => one.target === target).map((one) => " " + one.key + (one.value === "" ? "" : "=" + one.value)).join("");
  return targets.map(clause).join(" ; ");
}

export const changed = (changes: Change[], one: Change): Change[] => [...changes.filter((other) => other.target !== one.target || other.key !== one.key), one];
export const without = (changes: Change[], target: string, key: string): Change[] => changes.filter((other) => other.target !== target || other.key !== key);

// The options of `schedlab compare`. `own`: the scheduler of the unchanged row, under which variants are played, too.
export function options(view: View, own: string, kind: string): [string, string][] {
  const schedulers = view.schedulers.length > 0 && own ? [own, ...view.schedulers.filter((name) => name !== own)] : view.schedulers;
  const draft = variant(view.draft);
  const variants = view.pins.filter((pin) => pin !== draft).concat(draft || []);
  const part: [string, string][] = [["serve", view.serve], ["from", view.from], ["to", view.to], ["recorded-under", view.recorded]];
  return [
    ...variants.map((text): [string, string] => ["variant", text]),
    ...schedulers.map((text): [string, string] => ["scheduler", text]),
    ...part.filter(([, text]) => text !== ""),
    // A scenario has rows of its own, about which no one has asked here.
    ...(kind === "scenario" ? [["rows", "asked"] as [string, string]] : []),
  ];
}

const TEXTS = ["serve", "from", "to", "subject", "goal", "keep", "with", "lesson", "recorded"] as const;

export function write(view: View): string {
  const hash = new URLSearchParams();
  if (view.input) hash.set("input", view.input);
  for (const key of TEXTS) if (view[key]) hash.set(key, view[key]);
  view.draft.forEach((one) => hash.append("set", JSON.stringify([one.target, one.key, one.value])));
  view.pins.forEach((pin) => hash.append("pin", pin));
  view.schedulers.forEach((name) => hash.append("under", name));
  view.space.forEach((text) => hash.append("space", text));
  return "#" + hash;
}

// Reads an address; what is no change is left out.
export function read(text: string): View {
  const hash = new URLSearchParams(text.slice(1));
  const change = (text: string): Change[] => {
    try {
      const all: unknown = JSON.parse(text);
      if (!Array.isArray(all) || all.length !== 3 || !all.every((part) => typeof part === "string")) return [];
      const [target, key, value] = all as string[];
      return [{ target, key, value }];
    } catch {
      return [];
    }
  };
  const one = (key: string) => hash.get(key) ?? "";
  return {
    ...EMPTY, ...Object.fromEntries(TEXTS.map((key) => [key, one(key)])), input: one("input"),
    draft: hash.getAll("set").flatMap(change), pins: hash.getAll("pin"), schedulers: hash.getAll("under"), space: hash.getAll("space"),
  };
}
