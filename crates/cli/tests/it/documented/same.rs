//! Whether a block of a page says what the program prints: words exactly, numbers within the
//! tolerance of the block.

/// Returns the first difference, or `None`. Without a tolerance each character counts, but for
/// blanks at the end of a line.
pub(super) fn difference(page: &[&str], printed: &[&str], tolerance: f64) -> Option<String> {
    let at =
        (0..page.len().max(printed.len())).find(|at| match (page.get(*at), printed.get(*at)) {
            (Some(page), Some(printed)) => !is_same(page, printed, tolerance),
            _ => true,
        })?;
    let show =
        |line: Option<&&str>| line.map_or("(no such line)".to_owned(), |line| (*line).to_owned());
    Some(format!(
        "line {} of the output\n    the page:    {}\n    the program: {}",
        at + 1,
        show(page.get(at)),
        show(printed.get(at))
    ))
}

fn is_same(page: &str, printed: &str, tolerance: f64) -> bool {
    if tolerance == 0.0 {
        return page.trim_end() == printed.trim_end();
    }
    let (page, printed) = (parts(page), parts(printed));
    page.len() == printed.len()
        && page.iter().zip(&printed).all(|pair| match pair {
            (Part::Word(a), Part::Word(b)) => a == b,
            (Part::Number { value: a, unit: u }, Part::Number { value: b, unit: v }) => {
                let near = tolerance * f64::max(a.abs(), b.abs());
                (a - b).abs() <= f64::max(near, f64::max(*u, *v) * 1.001)
            }
            _ => false,
        })
}

#[derive(PartialEq, Debug)]
enum Part<'a> {
    Word(&'a str),
    /// A number, and one unit of its last place.
    Number {
        value: f64,
        unit: f64,
    },
}

/// Cuts a line into words and numbers. Blanks only part them: columns are as wide as their numbers.
fn parts(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for word in line.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let digits = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
            if digits > 0 {
                parts.push(Part::Word(&rest[..digits]));
                rest = &rest[digits..];
                continue;
            }
            let is_number =
                |letter: char| letter.is_ascii_digit() || letter == '.' || letter == ',';
            let end = rest.find(|letter| !is_number(letter)).unwrap_or(rest.len());
            // A full stop or a comma behind a number belongs to the sentence.
            let end = rest[..end].trim_end_matches(['.', ',']).len();
            parts.push(number(&rest[..end]));
            rest = &rest[end..];
        }
    }
    parts
}

fn number(text: &str) -> Part<'_> {
    let plain = text.replace(',', "");
    let places = plain.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    match plain.parse() {
        Ok(value) => Part::Number { value, unit: 0.1_f64.powi(i32::try_from(places).unwrap_or(0)) },
        // A version (6.18.44) is a word.
        Err(_) => Part::Word(text),
    }
}

#[test]
fn words_are_compared_exactly_and_numbers_within_the_tolerance() {
    let same = |a, b, tolerance| difference(&[a], &[b], tolerance).is_none();
    assert!(same("share 50.0%  ", "share 50.0%", 0.0));
    assert!(!same("share  50.0%", "share 50.0%", 0.0));
    assert!(same("share  97.5% ± 9.1,", "share 101.0% ± 9.5,", 0.05));
    assert!(!same("share 97.5%", "share 110.0%", 0.05));
    assert!(!same("share 97.5%", "shares 97.5%", 0.05));
    assert!(!same("share -97.5%", "share 97.5%", 0.05));
    assert!(same("0.1 points", "0.2 points", 0.05), "one unit of the last place");
    assert!(!same("0.1 points", "0.3 points", 0.05));
    assert!(same("12,345 events", "12,400 events", 0.01));
    assert!(!same("Linux 6.18.44", "Linux 6.18.45", 0.5));
    assert!(
        difference(&["a"], &["a", "b"], 0.5).is_some_and(|text| text.contains("(no such line)"))
    );
}
