// Requests to the server. The token comes in the part of the address behind `#`, which no server sees, and stays in this tab.

const STORED = "schedlab-token";
let token = "";

// Takes token or key out of the address; a key, with which a browser was started, is exchanged once.
export async function enter(): Promise<void> {
  const hash = new URLSearchParams(location.hash.slice(1));
  const given = hash.get("token"), key = hash.get("key");
  hash.delete("token");
  hash.delete("key");
  if (given || key) history.replaceState(null, "", "#" + hash);
  token = given ?? sessionStorage.getItem(STORED) ?? "";
  if (!given && key) {
    const answer = await fetch("/api/1/token", { method: "POST", body: key });
    if (answer.ok) token = ((await answer.json()) as string[])[0];
  }
  if (token) sessionStorage.setItem(STORED, token);
}

async function send(path: string, more: RequestInit = {}): Promise<Response> {
  const answer = await fetch("/api/1/" + path, { ...more, headers: { Authorization: "Bearer " + token } });
  if (answer.ok) return answer;
  const said = (await answer.json().catch(() => ({}))) as { error?: string };
  throw new Error(said.error ?? "the server answered " + answer.status);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { signal })).json() as Promise<T>;
}

export async function post(path: string, body: BodyInit, signal?: AbortSignal): Promise<Response> {
  return send(path, { method: "POST", body, signal });
}

// Server-sent events: each as it comes, until the last one. With a body it is a question, without one a look.
export async function stream(path: string, body: string | null, signal: AbortSignal, heard: (event: string, data: unknown) => void): Promise<void> {
  const answer = body === null ? await send(path, { signal }) : await post(path, body, signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end: number;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const block = text.slice(0, end);
      text = text.slice(end + 2);
      const event = /^event: (.*)$/m.exec(block), data = /^data: (.*)$/m.exec(block);
      if (event && data) heard(event[1], JSON.parse(data[1]));
    }
  }
}
