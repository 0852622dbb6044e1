//! What a page consists of.

use crate::{Cdf, Choice, Ladders, LaneWait, Lanes, Matrix, Series, Sweep, Table};

/// A page. Sections stand in the order in which they are pushed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Page {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) verdict: Option<(String, String, Tone)>,
    pub(crate) waits: Option<(String, Vec<LaneWait>)>,
    pub(crate) sections: Vec<Section>,
    pub(crate) footer: String,
}

/// How something is meant. A page shows it by a word or sign too, never by colour alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// What one wants.
    Good,
    /// What one does not want.
    Bad,
    /// Less important.
    Dim,
}

impl Tone {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Dim => "dim",
        }
    }
}

/// A heading with what belongs under it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    pub(crate) title: String,
    pub(crate) lead: String,
    pub(crate) folded: bool,
    pub(crate) parts: Vec<Part>,
}

/// One thing in a section.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// Short statements, one below the other.
    List(Vec<String>),
    /// Commands or a file, to be copied.
    Code(Code),
    /// The percentiles of several runs, with their names at the lines.
    Ladders(Ladders),
    /// One of several matrices at a time.
    Choice(Choice),
    /// A table.
    Table(Table),
    /// Distributions of one subject, as complementary CDFs.
    Cdf(Cdf),
    /// What ran where, CPU by CPU.
    Lanes(Lanes),
    /// Which does something to which.
    Matrix(Matrix),
    /// Values over time.
    Series(Series),
    /// Numbers over the values of a setting.
    Sweep(Sweep),
    /// Where numbers come from.
    Facts(Facts),
}

/// Text that is copied as it is: a command, a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    /// What it is, and where it belongs.
    pub title: String,
    /// The text.
    pub text: String,
}

/// Name and value pairs: provenance, settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts(pub Vec<(String, String)>);

impl Facts {
    /// Adds a pair; an empty value is left out.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.push((name.to_owned(), value));
        }
    }
}

impl Page {
    /// A page without sections.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), ..Page::default() }
    }

    /// The line below the title: what was looked at, on which machine.
    pub fn subtitle(&mut self, text: impl Into<String>) {
        self.subtitle = text.into();
    }

    /// Two sentences that stand above everything: what came out, and how sure that is.
    pub fn verdict(&mut self, outcome: impl Into<String>, certainty: impl Into<String>) {
        self.verdict = Some((outcome.into(), certainty.into(), Tone::Plain));
    }

    /// A few waits below the verdict, each of which leads to its place in the page's lanes.
    pub fn waits(&mut self, title: impl Into<String>, waits: Vec<LaneWait>) {
        if !waits.is_empty() {
            self.waits = Some((title.into(), waits));
        }
    }

    /// Marks the verdict as one that must not be relied on.
    pub fn distrust(&mut self) {
        if let Some(verdict) = &mut self.verdict {
            verdict.2 = Tone::Bad;
        }
    }

    /// A line at the end.
    pub fn footer(&mut self, text: impl Into<String>) {
        self.footer = text.into();
    }

    /// Adds a section; one without parts is left out.
    pub fn push(&mut self, section: Section) {
        if !section.parts.is_empty() {
            self.sections.push(section);
        }
    }
}

impl Section {
    /// An empty section.
    pub fn new(title: impl Into<String>) -> Section {
        Section { title: title.into(), ..Section::default() }
    }

    /// What the reader sees here and how to read it.
    pub fn lead(mut self, text: impl Into<String>) -> Section {
        self.lead = text.into();
        self
    }

    /// Folds the section behind its heading, until a reader opens it.
    pub fn folded(mut self) -> Section {
        self.folded = true;
        self
    }

    /// Adds a part.
    pub fn push(&mut self, part: impl Into<Part>) {
        self.parts.push(part.into());
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

macro_rules! parts {
    ($($name:ident),*) => { $(impl From<$name> for Part {
        fn from(part: $name) -> Part {
            Part::$name(part)
        }
    })* };
}
parts!(Code, Ladders, Choice, Table, Cdf, Lanes, Matrix, Series, Sweep, Facts);
