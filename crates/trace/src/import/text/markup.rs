//! Text inside other files: the HTML that systrace writes, of either age, and the JSON of Android
//! Studio and catapult.
//!
//! Lines of a document that are no trace are dropped; a text that is no document passes unchanged.

/// Where in a document a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum DocumentPart {
    /// Nothing says that the text is a document.
    #[default]
    Plain,
    /// A document, outside of a trace.
    Outside,
    /// In `<script class="trace-data">`: whether it is a trace is told by its first line.
    Script,
    /// In the trace of such a script.
    Trace,
    /// In `var linuxPerfData = "\`, as systrace wrote it before 2013.
    Literal,
    /// In a script of other data (a process list, clock offsets).
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Markup {
    place: DocumentPart,
    /// Something was read: what begins as text is no document.
    begun: bool,
}

impl Markup {
    /// The line as a tracer wrote it; `None` when it is no part of a trace.
    pub(super) fn line<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let trimmed = text.trim_ascii_start();
        if trimmed.starts_with('<') && !self.begun {
            let start = trimmed.as_bytes().get(1).copied().unwrap_or_default();
            // `<...>-12` and `<idle>-0` are tasks.
            let task = trimmed.starts_with("<...>") || trimmed.starts_with("<idle>");
            if !task && (start == b'!' || start.is_ascii_alphabetic()) {
                self.place = DocumentPart::Outside;
            }
        }
        self.begun |= !trimmed.is_empty();
        match self.place {
            DocumentPart::Plain => Some(text),
            DocumentPart::Outside => {
                if text.contains("class=\"trace-data\"") {
                    self.place = DocumentPart::Script;
                } else if text.contains("linuxPerfData = \"") {
                    self.place = DocumentPart::Literal;
                }
                None
            }
            _ if trimmed.starts_with("</script>") => {
                self.place = DocumentPart::Outside;
                None
            }
            DocumentPart::Script if trimmed.is_empty() => None,
            DocumentPart::Script => {
                let other = trimmed.starts_with(['{', '['])
                    || trimmed.starts_with("USER ")
                    || trimmed.starts_with("PID ");
                self.place = if other { DocumentPart::Other } else { DocumentPart::Trace };
                (!other).then_some(text)
            }
            DocumentPart::Trace => Some(text),
            DocumentPart::Other => None,
            DocumentPart::Literal => {
                if trimmed.starts_with("\";") {
                    self.place = DocumentPart::Outside;
                    return None;
                }
                // `line\n\`: the end of a line of a JavaScript string.
                Some(text.strip_suffix("\\n\\").or_else(|| text.strip_suffix('\\')).unwrap_or(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(document: &str) -> Vec<&str> {
        let mut markup = Markup::default();
        document.lines().filter_map(|line| markup.line(line)).collect()
    }

    #[test]
    fn text_passes() {
        assert_eq!(lines("<idle>-0 x\n<...>-3 y\nz"), ["<idle>-0 x", "<...>-3 y", "z"]);
        // A line that was cut off makes no document of a text.
        assert_eq!(lines("<idle>-0 x\n  <idl\nz"), ["<idle>-0 x", "  <idl", "z"]);
    }

    #[test]
    fn the_scripts_of_a_page_are_read() {
        let page = "<!DOCTYPE html>\n<script>var a;</script>\n\
                    <script class=\"trace-data\" type=\"application/text\">\n\n# tracer: nop\na\n\
                    </script>\n\
                    <script class=\"trace-data\" type=\"application/text\">\n{\"x\": 1}\nb\n\
                    </script>\nc\n";
        assert_eq!(lines(page), ["# tracer: nop", "a"]);
    }

    #[test]
    fn the_literal_of_an_old_page_is_read() {
        let page = "<html>\n  var linuxPerfData = \"\\\n# tracer: nop\\n\\\na\\n\\\n\\n\";\nb";
        assert_eq!(lines(page)[..2], ["# tracer: nop", "a"]);
    }
}
