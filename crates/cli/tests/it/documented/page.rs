//! The fenced blocks of a Markdown page: which language, which marker, which commands, which
//! output.

use std::ops::Range;

/// What the comment above a block says about it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Marker {
    /// The block is run and compared; the last command ends with this exit code.
    Run {
        /// Relative difference that a number may have; 0: every character is compared.
        tolerance: f64,
        exit: i32,
    },
    /// The block was recorded where it cannot be made again here: on which machine, and why.
    Recorded(String),
    /// The block is a drawing.
    Drawing,
}

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    /// Line of the opening fence, counted from 1.
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) marker: Marker,
    /// Whether the page has a marker for it.
    pub(super) is_marked: bool,
    /// Its lines, without the fences: indexes into the lines of the page.
    pub(super) body: Range<usize>,
}

/// A command of a `console` block, and the lines that the page prints below it.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    /// The command without `$ `, its continued lines joined.
    pub(super) command: String,
    /// Indexes into the lines of the page.
    pub(super) output: Range<usize>,
}

/// Returns the blocks of a page, or what is wrong with a marker or a fence, with its line.
pub(super) fn blocks(lines: &[&str]) -> Result<Vec<Block>, (usize, String)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let Some(language) = lines[at].trim_start().strip_prefix("```") else {
            at += 1;
            continue;
        };
        let closing = lines[at + 1..].iter().position(|line| line.trim() == "```");
        let end = at + 1 + closing.ok_or((at + 1, "the block is not closed".to_owned()))?;
        let comment = at.checked_sub(1).and_then(|before| comment(lines[before]));
        let marker = comment.map(marker).transpose().map_err(|problem| (at, problem))?.flatten();
        found.push(Block {
            line: at + 1,
            language: language.trim().to_owned(),
            is_marked: marker.is_some(),
            marker: marker.unwrap_or(Marker::Run { tolerance: 0.0, exit: 0 }),
            body: at + 1..end,
        });
        at = end + 1;
    }
    Ok(found)
}

fn comment(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

/// Returns the marker of a comment; `None` for a comment that is about something else.
fn marker(comment: &str) -> Result<Option<Marker>, String> {
    if comment == "drawing" {
        return Ok(Some(Marker::Drawing));
    }
    if let Some(place) = comment.strip_prefix("recorded:") {
        let place = place.trim();
        if !place.contains("; ") {
            return Err(format!(
                "`recorded: {place}` must say on which machine, and why it is not run: WHERE; WHY"
            ));
        }
        return Ok(Some(Marker::Recorded(place.to_owned())));
    }
    let Some(settings) = comment.strip_prefix("run:") else { return Ok(None) };
    let (mut tolerance, mut exit) = (0.0, 0);
    for setting in settings.split(',').map(str::trim) {
        let wrong = || format!("`run: {setting}`: allowed are `tolerance N%` and `exit N`");
        match setting.split_once(' ').ok_or_else(wrong)? {
            ("tolerance", percent) => {
                let percent: f64 =
                    percent.strip_suffix('%').and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
                if !(percent > 0.0 && percent <= 50.0) {
                    return Err(format!("`run: {setting}`: a tolerance is between 0 and 50 %"));
                }
                tolerance = percent / 100.0;
            }
            ("exit", code) => exit = code.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok(Some(Marker::Run { tolerance, exit }))
}

/// Returns the commands of a `console` block with their output.
pub(super) fn steps(lines: &[&str], block: &Block) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut at = block.body.start;
    while at < block.body.end {
        if let Some(first) = lines[at].strip_prefix("$ ") {
            let mut command = first.to_owned();
            while command.ends_with('\\') && at + 1 < block.body.end {
                at += 1;
                command =
                    format!("{} {}", command.trim_end_matches('\\').trim_end(), lines[at].trim());
            }
            steps.push(Step { command, output: at + 1..at + 1 });
        } else {
            let step =
                steps.last_mut().ok_or("a `console` block begins with a command: `$ ...`")?;
            step.output.end = at + 1;
        }
        at += 1;
    }
    if steps.is_empty() {
        return Err("a `console` block without a command".to_owned());
    }
    Ok(steps)
}

/// Returns the command lines of a `sh` block, their continued lines joined, with their line in the
/// page (counted from 1).
pub(super) fn command_lines(lines: &[&str], block: &Block) -> Vec<(usize, String)> {
    let (mut found, mut begun) = (Vec::new(), String::new());
    for at in block.body.clone() {
        if let Some(goes_on) = lines[at].strip_suffix('\\') {
            begun += goes_on;
            continue;
        }
        let whole = std::mem::take(&mut begun) + lines[at];
        if !whole.trim().is_empty() {
            found.push((at + 1, whole));
        }
    }
    found
}

/// Returns the code spans of a page (`` `...` ``) outside of its blocks, with their line (counted
/// from 1).
pub(super) fn spans<'a>(lines: &[&'a str], blocks: &[Block]) -> Vec<(usize, &'a str)> {
    let fenced =
        |at: usize| blocks.iter().any(|block| at + 1 >= block.body.start && at <= block.body.end);
    let prose = (0..lines.len()).filter(|at| !fenced(*at));
    prose
        .flat_map(|at| lines[at].split('`').skip(1).step_by(2).map(move |span| (at + 1, span)))
        .collect()
}

#[test]
fn markers_and_steps_are_read() {
    let page = "<!-- run: tolerance 5%, exit 1 -->\n```console\n$ schedlab show \\\n    a.slt\n\
                one\n\ntwo\n$ ls\n```\n";
    let lines: Vec<&str> = page.lines().collect();
    let found = blocks(&lines).expect("it is well formed");
    assert_eq!((found[0].line, found[0].language.as_str()), (2, "console"));
    assert_eq!(found[0].marker, Marker::Run { tolerance: 0.05, exit: 1 });
    let steps = steps(&lines, &found[0]).expect("it has commands");
    assert_eq!(steps[0], Step { command: "schedlab show a.slt".to_owned(), output: 4..7 });
    assert_eq!(steps[1], Step { command: "ls".to_owned(), output: 8..8 });
    let recorded = marker("recorded: Linux 6.18, 2 vCPUs; needs root");
    assert!(matches!(recorded, Ok(Some(Marker::Recorded(_)))), "{recorded:?}");
    assert_eq!(marker("made by `cargo xtask docs`"), Ok(None));
    for wrong in [
        "recorded: somewhere",
        "run: often",
        "run: tolerance 80%",
        "run: tolerance 5",
        "run: exit soon",
    ] {
        assert!(marker(wrong).is_err(), "{wrong}");
    }
    assert!(blocks(&["```console", "$ ls"]).is_err());
}
