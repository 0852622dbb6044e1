//! The lessons of `docs/guide/course.md`, which is the one source of their text. A lesson with a
//! line that begins with `In the workbench:` is a live scenario with two sliders there.

use super::SCHEMA;
use schemars::JsonSchema;
use serde::Serialize;

const TEXT: &str = include_str!("../../../../docs/guide/course.md");
/// Begins the line that names a scenario and two settings.
const LIVE: &str = "In the workbench:";

/// The lessons of the course.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct CourseOutput {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Its title.
    pub title: String,
    /// The lessons, in order.
    pub lessons: Vec<LessonOutput>,
}

/// A lesson.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct LessonOutput {
    /// Its number, from 1 on.
    pub number: usize,
    /// Its title.
    pub title: String,
    /// Its command.
    pub command: String,
    /// Its paragraphs, without the command and what it prints. A word between two backticks is one
    /// of a program, a part between two asterisks is a question.
    pub text: Vec<String>,
    /// The question of the lesson; empty: there is none.
    pub question: String,
    /// The scenario of the gallery that is live; missing: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The two settings that have a slider: target and name, as `compare --variant` has them.
    pub settings: Vec<[String; 2]>,
}

impl CourseOutput {
    /// Reads the course.
    pub fn new() -> CourseOutput {
        let (head, lessons) = TEXT.split_once("\n## ").unwrap_or((TEXT, ""));
        let title = head.lines().next().unwrap_or_default().trim_start_matches('#').trim();
        CourseOutput {
            schema: SCHEMA,
            title: title.to_owned(),
            lessons: lessons.split("\n## ").filter_map(lesson).collect(),
        }
    }
}

impl Default for CourseOutput {
    fn default() -> CourseOutput {
        CourseOutput::new()
    }
}

/// Reads a lesson, which begins with its number and title.
fn lesson(text: &str) -> Option<LessonOutput> {
    let (head, body) = text.split_once('\n')?;
    let (number, title) = head.split_once(". ")?;
    let mut found = LessonOutput {
        number: number.trim().parse().ok()?,
        title: title.trim().to_owned(),
        command: String::new(),
        text: Vec::new(),
        question: String::new(),
        scenario: None,
        settings: Vec::new(),
    };
    // Blocks of code are between lines of three backticks; every second part is one.
    for (place, part) in body.split("```").enumerate() {
        if place % 2 == 1 {
            let line = part.lines().nth(1).unwrap_or_default();
            if found.command.is_empty() {
                line.trim_start_matches("$ ").clone_into(&mut found.command);
            }
            continue;
        }
        for paragraph in part.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
            found.paragraph(&plain(paragraph));
        }
    }
    Some(found)
}

impl LessonOutput {
    fn paragraph(&mut self, text: &str) {
        if let Some(live) = text.strip_prefix(LIVE) {
            let mut words = live.split('`').skip(1).step_by(2);
            self.scenario = words.next().map(str::to_owned);
            let setting = |text: &str| {
                let (target, key) = text.rsplit_once(' ')?;
                Some([target.to_owned(), key.to_owned()])
            };
            self.settings = words.filter_map(setting).collect();
            return;
        }
        if let Some((_, question)) = text.split_once("*Question: ") {
            let question = question.split('*').next().unwrap_or_default();
            question.clone_into(&mut self.question);
        }
        self.text.push(text.to_owned());
    }
}

/// Returns a paragraph in one line, with the words of its links.
fn plain(paragraph: &str) -> String {
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = line.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](") {
            Some((words, rest)) => {
                text += words;
                text += rest.split_once(')').map_or("", |(_, after)| after);
            }
            None => {
                text.push('[');
                text += part;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;
    use crate::variant::Variant;
    use schedlab_scheduler::registry;

    #[test]
    fn the_course_has_its_lessons() {
        let course = CourseOutput::new();
        assert_eq!(course.title, "A course in schedulers, from 2.4 to EEVDF");
        let numbers: Vec<usize> = course.lessons.iter().map(|lesson| lesson.number).collect();
        assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
        let headings = TEXT.lines().filter(|line| line.starts_with("## ")).count();
        assert_eq!(numbers.len(), headings);
        let first = &course.lessons[0];
        assert_eq!(first.command, "schedlab compare two-hogs --brief");
        assert!(first.question.starts_with("why is the row"), "{first:?}");
        assert!(first.text[0].starts_with("Two endless loops"), "{first:?}");
        let live = course.lessons.iter().filter(|lesson| lesson.scenario.is_some()).count();
        assert!(live >= 6, "{live}");
    }

    /// The scenario of each live lesson is one, and its two settings are settings of it.
    #[test]
    fn every_live_lesson_can_be_played() {
        for lesson in CourseOutput::new().lessons {
            let Some(name) = &lesson.scenario else {
                assert!(lesson.settings.is_empty(), "{lesson:?}");
                continue;
            };
            let scenario = gallery::load(name).unwrap_or_else(|| panic!("no {name}")).unwrap();
            assert_eq!(lesson.settings.len(), 2, "{lesson:?}");
            let first = &scenario.schedulers[0];
            let knobs = registry::find(&first.name).map(|entry| (entry.knobs)()).unwrap();
            for [target, key] in &lesson.settings {
                let is_there = match target.as_str() {
                    "scheduler" => knobs.iter().any(|knob| knob.name == key.as_str()),
                    "machine" => true,
                    _ => {
                        scenario.classes.contains(target)
                            || scenario.workload.tasks.iter().any(|task| task.name == *target)
                            || scenario.workload.groups.iter().any(|group| group.name == *target)
                            || scenario.workload.sources.iter().any(|one| one.name == *target)
                    }
                };
                assert!(is_there, "{target} {key}: not of {name}: {:?}", scenario.classes);
                assert!(
                    Variant::parse_named("x", &format!("{target} {key}=1")).is_ok()
                        || Variant::parse_named("x", &format!("{target} {key}=1ms")).is_ok()
                        || Variant::parse_named("x", &format!("{target} {key}=50%")).is_ok()
                        || Variant::parse_named("x", &format!("{target} {key}=x1")).is_ok()
                        || Variant::parse_named("x", &format!("{target} {key}=idle")).is_ok(),
                    "{target} {key}"
                );
            }
        }
    }
}
