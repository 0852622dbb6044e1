//! Command lines as a shell reads them, as far as the documents need it.

/// Commands that only read and write files: they are run as they are written.
const RUN: [&str; 14] = [
    "tune",
    "compare",
    "show",
    "diff",
    "export",
    "import",
    "list",
    "generate",
    "explain",
    "completions",
    "man",
    "doctor",
    "status",
    "published",
];

/// One call of `schedlab` in a command line.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Invocation {
    /// Its arguments.
    pub(super) words: Vec<String>,
    /// Whether another program writes to its standard input.
    pub(super) reads_a_pipe: bool,
    /// Whether it can be run here: it reads and writes files only.
    pub(super) run: bool,
}

impl Invocation {
    /// Returns true when the reader has nothing to fill in (`...`, `COMMAND`, `--NAME`).
    pub(super) fn is_whole(&self) -> bool {
        let open = |word: &String| {
            word.contains("...")
                || word.contains("NAME-OF")
                || word.contains('…')
                || ["COMMAND", "--NAME"].contains(&word.as_str())
                || word.starts_with(['[', '<'])
        };
        !self.words.iter().any(open)
    }
}

/// Splits a command line as a shell does: quotes, and a comment after blanks; `|`, `;`, `&&` and
/// redirections are words. What `$(pgrep NAME)` would give is a number.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(mark), letter) if letter == mark => quote = None,
            (Some(')'), _) => {}
            (Some(_), letter) => word.push(letter),
            (None, '\'' | '"') => (quote, open) = (Some(letter), true),
            (None, '(') if word.ends_with('$') => {
                word.pop();
                word.push('1');
                quote = Some(')');
            }
            (None, '#') if word.is_empty() => break,
            (None, letter) if letter.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, letter) => word.push(letter),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the calls of `schedlab` in a line such as
/// `perf script | sudo schedlab show - > out.txt`.
pub(super) fn invocations(line: &str) -> Vec<Invocation> {
    let words = words(line);
    let mut found = Vec::new();
    let mut piped = false;
    for part in words.split_inclusive(|word| ["|", "&&", ";"].contains(&word.as_str())) {
        let from_pipe = piped;
        piped = part.last().is_some_and(|word| word == "|");
        let part = part.strip_suffix(&["|".to_owned()]).unwrap_or(part);
        let mut own = part.iter().skip_while(|word| *word == "sudo");
        if own.next().is_none_or(|word| word != "schedlab") {
            continue;
        }
        let ends = |word: &&String| ![">", "<", "2>", "&&", ";"].contains(&word.as_str());
        let own: Vec<String> = own.take_while(ends).cloned().collect();
        if let Some(command) = own.first() {
            // The prices of this machine are there after `schedlab calibrate` only, and every
            // scenario of the gallery takes minutes.
            let all_published =
                command == "published" && own.get(1).is_none_or(|word| word.starts_with('-'));
            let elsewhere = own.iter().any(|word| word == "this-machine") || all_published;
            let run = RUN.contains(&command.as_str()) && !elsewhere;
            found.push(Invocation { words: own, reads_a_pipe: from_pipe, run });
        }
    }
    found
}

/// Returns the names of the commands that `schedlab --help` lists: lines with two blanks and a
/// name, below headings of groups, and those behind `Others:`.
pub(super) fn commands_of_help(help: &str) -> Vec<String> {
    let others = help.lines().find_map(|line| line.strip_prefix("Others: ")?.split(" (").next());
    let others = others.into_iter().flat_map(|names| names.split(", ")).map(str::to_owned);
    let listed = help.lines().skip_while(|line| !line.ends_with(':'));
    let listed = listed.take_while(|line| !line.starts_with("Options:"));
    let entries = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    entries
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .chain(others)
        .collect()
}

/// Returns the command lines of the examples of a help text. A description follows two or more
/// blanks after the command.
pub(super) fn examples(help: &str) -> Vec<String> {
    let examples = help.split("Examples:\n").nth(1).unwrap_or_default();
    let (mut found, mut begun) = (Vec::new(), String::new());
    for line in examples.lines().take_while(|line| line.starts_with("  ") || line.is_empty()) {
        if let Some(goes_on) = line.strip_suffix('\\') {
            begun += goes_on;
            continue;
        }
        let whole = std::mem::take(&mut begun) + line;
        let whole = whole.trim();
        let described = |at: &usize| !whole[*at..].trim_start().starts_with('-');
        let cut = whole.find("   ").or_else(|| whole.find("  ").filter(described));
        found.push(whole[..cut.unwrap_or(whole.len())].to_owned());
    }
    found
}

#[test]
fn calls_are_found_in_command_lines() {
    let words = |line: &str| -> Vec<Vec<String>> {
        invocations(line).into_iter().map(|one| one.words).collect()
    };
    assert_eq!(
        words("sudo schedlab record -o 'a b.slt' > log # all of it"),
        [["record", "-o", "a b.slt"]]
    );
    assert_eq!(
        words("perf script | schedlab show - && schedlab doctor"),
        [vec!["show", "-"], vec!["doctor"]]
    );
    assert_eq!(
        words("sudo schedlab attach --pid $(pgrep a b) --cpus 0"),
        [["attach", "--pid", "1", "--cpus", "0"]]
    );
    assert!(invocations("perf script | schedlab show -")[0].reads_a_pipe);
    assert_eq!(words("pip install schedlab"), Vec::<Vec<String>>::new());
    assert!(!invocations("schedlab compare ...")[0].is_whole());
    assert!(
        !invocations("schedlab record --all")[0].run && invocations("schedlab show a.slt")[0].run
    );
}
