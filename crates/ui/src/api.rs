//! The addresses: `docs/guide/workbench.md` lists them.

use crate::answer::{self, Events};
use crate::inputs::{Failure, Inputs};
use crate::live::{Live, tell_states};
use crate::questions::{Asked, Kind, Questions, TAB, Work, tell_failure, text};
use crate::search::Searched;
use crate::{assets, guard::Guard};
use schedlab_http::{Method, Request, Response};
use schedlab_model::{MAX_CPUS, Ns};
use schedlab_scheduler::{SchedulerSpec, registry, sched_ext};
use schedlab_study::page::Origin;
use schedlab_study::workbench::ask::Question;
use schedlab_study::workbench::course::CourseOutput;
use schedlab_study::workbench::overview::Look;
use schedlab_study::workbench::search::SearchQuestion;
use schedlab_study::workbench::settings::SettingsOutput;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a question at most.
const QUESTION: u64 = 64 << 10;
/// Bytes of an address at most.
const ADDRESS: usize = 8 << 10;

/// What a server answers from.
pub(crate) struct Api {
    pub(crate) guard: Guard,
    pub(crate) inputs: Inputs,
    pub(crate) questions: Questions,
    /// How many comparisons of two recordings were begun.
    pub(crate) comparisons: AtomicUsize,
    pub(crate) origin: Origin,
    /// What watches the machine; `None`: it is not watched.
    pub(crate) live: Option<Box<dyn Live>>,
}

impl Api {
    /// Answers a request.
    ///
    /// # Errors
    /// The one who asked is gone.
    pub(crate) fn serve(&self, mut request: Request) -> io::Result<()> {
        if let Err(refusal) = self.guard.check_place(&request) {
            return request.respond(answer::refused(refusal));
        }
        let url = request.url().to_owned();
        if url.len() > ADDRESS {
            return request.respond(answer::failed(414, "the address is too long"));
        }
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        let is_get = [&Method::GET, &Method::HEAD].contains(&request.method());
        if let Some(asset) = assets::at(path) {
            return request.respond(match is_get {
                true => answer::text(200, asset.kind, asset.text),
                false => answer::failed(405, "a file is only read: GET"),
            });
        }
        let Some(path) = path.strip_prefix("/api/1/") else {
            return request
                .respond(answer::failed(404, "there is nothing here: see /api/1/inputs"));
        };
        if path == "token" {
            let answer = self.token(&mut request);
            return request.respond(answer);
        }
        if let Err(refusal) = self.guard.check_token(&request) {
            return request.respond(answer::refused(refusal));
        }
        let parts: Vec<&str> = path.split('/').collect();
        let found = match (is_get, request.method(), &parts[..]) {
            (true, _, ["schema"]) => schema(),
            (true, _, ["course"]) => Ok(answer::json(&CourseOutput::new())),
            (true, _, ["inputs"]) => Ok(answer::json(&self.inputs.list(self.live.is_some()))),
            (true, _, ["inputs", id, "diff"]) => return self.diff(request, &decoded(id), query),
            (true, _, ["inputs", id, what]) => self.input(&decoded(id), what, query),
            (_, &Method::POST, ["inputs"]) => self.keep(&mut request, query),
            (_, &Method::POST, ["ask"]) => return self.ask(request, Kind::Answer),
            (_, &Method::POST, ["prepare"]) => return self.ask(request, Kind::Preparation),
            (_, &Method::POST, ["tune"]) => return self.tune(request),
            (_, &Method::POST, ["stop"]) => self.stop(&mut request),
            (true, _, ["live"]) => return self.live(request, query),
            (_, &Method::POST, ["live", "keep"]) => self.keep_live(),
            (_, &Method::POST, ["page"]) => self.page(&mut request),
            _ => Err((404, "there is no such address, or not with this method".to_owned())),
        };
        request.respond(found.unwrap_or_else(failed))
    }

    /// Gives the token for the key with which the browser was started.
    fn token(&self, request: &mut Request) -> Response {
        let key = body(request, 256).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let token = key.as_deref().and_then(|key| self.guard.exchange(key.trim()));
        match token {
            Some(token) => answer::json(&[token]),
            None => answer::refused(crate::guard::Refusal::Token),
        }
    }

    /// What is in an input, or in a part of it.
    fn input(&self, id: &str, what: &str, query: &str) -> Result<Response, Failure> {
        // It needs no events in memory.
        if what == "picture" {
            return self.inputs.picture(id).map(|found| answer::json(&found));
        }
        let (look, under) = (look(query)?, under(query)?);
        let under = under.as_ref();
        let opened = self.inputs.open(id)?;
        let wrong = |error| (422, self.inputs.said(&error, id));
        match what {
            "overview" => {
                let later = programs_later(query)?;
                let found = opened.overview(&look, under, later);
                found.map(|found| answer::json(&found)).map_err(wrong)
            }
            "programs" => opened.programs(&look).map(|found| answer::json(&found)).map_err(wrong),
            "lanes" => {
                let lanes = match columns(query)? {
                    Some(columns) => opened.first_lanes(&look, columns),
                    None => opened.lanes(&look),
                };
                lanes.map(|lanes| answer::json(&lanes.data())).map_err(wrong)
            }
            "flow" => opened.flow(&look).map(|found| answer::json(&found)).map_err(wrong),
            "beside" => {
                let other = self.inputs.open(&value(query, "with").unwrap_or_default())?;
                let both = opened.beside(&look, &other, &Look::default());
                both.map(|lanes| answer::json(&lanes.data())).map_err(wrong)
            }
            "settings" => {
                let cpus = opened.recording.header.topology.cpus();
                let sources =
                    opened.scenario.as_ref().is_some_and(|one| !one.workload.sources.is_empty());
                Ok(answer::json(&SettingsOutput::new(
                    cpus,
                    opened.family(under),
                    sources,
                    &self.inputs.named,
                )))
            }
            _ => Err((
                404,
                "an input has overview, programs, lanes, settings, flow, diff, beside and picture"
                    .to_owned(),
            )),
        }
    }

    /// Keeps a file that was dropped on the page.
    fn keep(&self, request: &mut Request, query: &str) -> Result<Response, Failure> {
        let name = value(query, "name").unwrap_or_default();
        let id = self.inputs.keep(&name, request)?;
        Ok(answer::json(&[id]))
    }

    /// Answers a question, or does what one will need.
    fn ask(&self, mut request: Request, kind: Kind) -> io::Result<()> {
        let question = match question::<Question>(&mut request) {
            Ok(question) => question,
            Err(failure) => return request.respond(failed(failure)),
        };
        let asked = match Asked::new(&question, &self.inputs) {
            Ok(asked) => asked,
            Err(failure) => return request.respond(failed(failure)),
        };
        let does = match kind {
            Kind::Preparation => Questions::prepare,
            _ => Questions::stages,
        };
        self.stream(request, (kind, &question.tab), &|stop, tell| {
            does(&self.questions, &asked, &self.inputs, stop, tell);
        })
    }

    /// Compares two recordings: `answer` (`schedlab-diff/1`) or `failed`. It ends when its reader
    /// is gone, and nothing else ends it.
    fn diff(&self, request: Request, id: &str, query: &str) -> io::Result<()> {
        let pair = match self.inputs.pair(id, &value(query, "with").unwrap_or_default()) {
            Ok(pair) => pair,
            Err(failure) => return request.respond(failed(failure)),
        };
        let own = self.comparisons.fetch_add(1, Relaxed).to_string();
        self.stream(request, (Kind::Comparison, &own), &|stop, tell| match pair
            .diff(&|| stop.load(Relaxed))
        {
            Ok(diff) => tell("answer", text(&diff)),
            Err(failure) => tell_failure(tell, &failure),
        })
    }

    fn tune(&self, mut request: Request) -> io::Result<()> {
        let question = match question::<SearchQuestion>(&mut request) {
            Ok(question) => question,
            Err(failure) => return request.respond(failed(failure)),
        };
        let searched = match Searched::new(&question, &self.inputs) {
            Ok(searched) => searched,
            Err(failure) => return request.respond(failed(failure)),
        };
        self.stream(request, (Kind::Answer, &searched.question.tab), &|stop, tell| {
            searched.run(&self.questions, &self.inputs, stop, tell);
        })
    }

    /// Sends the events of `work`.
    fn stream(&self, request: Request, view: (Kind, &str), work: Work<'_>) -> io::Result<()> {
        // One of the two takes the request.
        let request = std::cell::Cell::new(Some(request));
        let gone = || io::Error::other("the request was answered");
        let taken = || request.take().ok_or_else(gone);
        self.questions.stream(
            view,
            || Events::begin(taken()?),
            |failure| taken()?.respond(failed(failure)),
            work,
        )
    }

    /// Ends the question of a view; what it has found is its answer.
    fn stop(&self, request: &mut Request) -> Result<Response, Failure> {
        let tab: String = question(request)?;
        self.questions.stop(&tab);
        Ok(answer::json(&[tab]))
    }

    fn watched(&self) -> Result<&dyn Live, Failure> {
        let missing = || (404, "the machine is not watched: start `schedlab ui --live`".to_owned());
        self.live.as_deref().ok_or_else(missing)
    }

    fn live(&self, request: Request, query: &str) -> io::Result<()> {
        let live = match self.watched() {
            Ok(live) => live,
            Err(failure) => return request.respond(failed(failure)),
        };
        let tab: String = value(query, "tab").unwrap_or_default().chars().take(TAB).collect();
        self.stream(request, (Kind::Answer, &tab), &|stop, tell| tell_states(live, stop, tell))
    }

    fn keep_live(&self) -> Result<Response, Failure> {
        let (name, file) = self.watched()?.keep().map_err(|why| (503, why))?;
        Ok(answer::json(&[self.inputs.add(&name, file)]))
    }

    fn page(&self, request: &mut Request) -> Result<Response, Failure> {
        let question: Question = question(request)?;
        let asked = Asked::new(&question, &self.inputs)?;
        let page = self.questions.page(asked, &self.inputs, &self.origin)?;
        Ok(answer::file("schedlab.html", "text/html", page))
    }
}

/// Returns the schema of what is answered here; that of answers is that of `schedlab compare`.
fn schema() -> Result<Response, Failure> {
    let all = schedlab_study::schemas::all();
    let own = all.iter().find(|(name, _)| *name == schedlab_study::workbench::SCHEMA);
    let missing = || (500, "the schema is missing: a fault of schedlab".to_owned());
    own.map(|(_, schema)| answer::json(schema)).ok_or_else(missing)
}

fn failed((status, why): Failure) -> Response {
    answer::failed(status, &schedlab_model::text::shown_lines(&why))
}

/// Reads a body of at most `max` bytes.
fn body(request: &mut Request, max: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = request.take(max + 1).read_to_end(&mut bytes);
    read.map_err(|error| (400, format!("the question did not arrive: {error}")))?;
    match bytes.len() as u64 > max {
        true => Err((413, format!("a question has {max} bytes at most"))),
        false => Ok(bytes),
    }
}

fn question<T: DeserializeOwned>(request: &mut Request) -> Result<T, Failure> {
    let bytes = body(request, QUESTION)?;
    serde_json::from_slice(&bytes).map_err(|error| (400, format!("the question: {error}")))
}

/// Reads `serve`, `from` and `to`.
fn look(query: &str) -> Result<Look, Failure> {
    let time = |name: &str| {
        let text = value(query, name).filter(|text| !text.is_empty());
        let read =
            |text: String| text.parse::<Ns>().map_err(|error| (422, format!("{name}: {error}")));
        text.map(read).transpose()
    };
    Ok(Look {
        serve: value(query, "serve").filter(|text| !text.is_empty()),
        from: time("from")?,
        to: time("to")?,
    })
}

/// Reads `under`: the scheduler that models the kernel of a recording.
fn under(query: &str) -> Result<Option<SchedulerSpec>, Failure> {
    let text = value(query, "under").filter(|text| !text.is_empty());
    let wrong = |error: String| (422, format!("under: {error}"));
    let read = |text: String| {
        if sched_ext::is_object(&text) {
            return Err(wrong("names a file, which a page cannot do".to_owned()));
        }
        let spec: SchedulerSpec = text.parse().map_err(|error| wrong(format!("{error}")))?;
        registry::build(&spec, MAX_CPUS).map_err(|error| wrong(error.to_string()))?;
        Ok(spec)
    };
    text.map(read).transpose()
}

/// Reads `programs`: whether they may follow in another answer.
fn programs_later(query: &str) -> Result<bool, Failure> {
    match value(query, "programs").as_deref() {
        None | Some("") => Ok(false),
        Some("later") => Ok(true),
        Some(_) => Err((422, "programs: `later`, or nothing".to_owned())),
    }
}

/// Reads `columns`: how many a picture of the lanes has.
fn columns(query: &str) -> Result<Option<usize>, Failure> {
    let text = value(query, "columns").filter(|text| !text.is_empty());
    let read = |text: String| {
        let count = text.parse().ok().filter(|count| *count > 0);
        count.ok_or_else(|| (422, "columns: a number of pixels, such as 1400".to_owned()))
    };
    text.map(read).transpose()
}

/// Returns the value of a name in a query.
fn value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(own, _)| decoded(own) == name);
    found.next().map(|(_, value)| decoded(&value.replace('+', " ")))
}

/// Returns a text without its percent-encoding (RFC 3986, section 2.1); what is no UTF-8 is
/// replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let byte = after.first_chunk().filter(|_| *first == b'%').and_then(byte_of);
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the byte of two hexadecimal digits.
fn byte_of([high, low]: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read() {
        assert_eq!(decoded("a%20b%2Fc%zz%4"), "a b/c%zz%4");
        assert_eq!(decoded("%ff%+1"), "\u{fffd}%+1");
        let query = "serve=Web+Content%26co&from=1s&to=";
        let look = look(query).unwrap_or_else(|(_, why)| panic!("{why}"));
        assert_eq!(look.serve.as_deref(), Some("Web Content&co"));
        assert_eq!((look.from, look.to), (Some(Ns::from_s(1)), None));
        let wrong = super::look("from=5").err();
        assert!(wrong.is_some_and(|(status, why)| status == 422 && why.starts_with("from:")));
        let columns = |query| super::columns(query).map_err(|(status, _)| status);
        assert_eq!(
            ["to=", "columns=", "columns=7"].map(columns),
            [Ok(None), Ok(None), Ok(Some(7))]
        );
        let under = |query| super::under(query).map_err(|(_, why)| why);
        assert_eq!(under("under=linux-6.18").unwrap().unwrap().name, "linux-6.18");
        assert_eq!(under("from=1s"), Ok(None));
        assert!(under("under=no-such-thing").is_err() && under("under=linux-6.18:x=1").is_err());
        let said = under("under=bpf:/etc/passwd").unwrap_err();
        assert!(said.contains("names a file"), "{said}");
        assert_eq!(["columns=0", "columns=-1", "columns=x"].map(columns), [Err(422); 3]);
    }
}
