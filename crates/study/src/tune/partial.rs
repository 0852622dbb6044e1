//! A search that was ended before its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a search came that was ended before its end. Its answer is of the last round that was
/// finished; of the first one where none was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Partial {
    /// Runs that were finished.
    pub runs: usize,
    /// Runs of the whole search.
    pub of_runs: usize,
    /// Settings that the answer is of.
    pub settings: usize,
    /// The round that the answer is of, from 1.
    pub round: usize,
    /// Rounds of the whole search.
    pub of_rounds: usize,
    /// Recordings of `--validate` that were not reached.
    pub not_validated: usize,
}

impl Partial {
    /// Returns it as a sentence.
    pub fn says(&self) -> String {
        let settings = match self.settings {
            1 => "one setting".to_owned(),
            count => format!("{count} settings"),
        };
        let round = match self.of_rounds {
            1 => String::new(),
            all => format!(" of round {} of {all}", self.round),
        };
        let validated = match self.not_validated {
            0 => String::new(),
            1 => "; one recording of --validate was not reached".to_owned(),
            count => format!("; {count} recordings of --validate were not reached"),
        };
        format!(
            "ended early, after {} of {} runs; the answer is of {settings}{round}{validated}",
            self.runs, self.of_runs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_answer_says_of_what_it_is() {
        let partial = Partial {
            runs: 37,
            of_runs: 112,
            settings: 40,
            round: 1,
            of_rounds: 3,
            not_validated: 1,
        };
        assert_eq!(
            partial.says(),
            "ended early, after 37 of 112 runs; the answer is of 40 settings of round 1 of 3; one \
             recording of --validate was not reached"
        );
        let one = Partial { settings: 1, of_rounds: 1, not_validated: 0, ..partial };
        assert_eq!(one.says(), "ended early, after 37 of 112 runs; the answer is of one setting");
    }
}
