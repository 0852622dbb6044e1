//! What can be opened: files that the user named, files of a folder, what was dropped on the page,
//! and the scenarios of the gallery. A page names them by the `id` that they have here.

use crate::cache::Cache;
use crate::{UiError, WorkbenchOptions};
use schedlab_files::unnamed;
use schedlab_model::text::shown;
use schedlab_study::StudyError;
use schedlab_study::compare::Ended;
use schedlab_study::diff::{Diff, DiffOptions, diff_until};
use schedlab_study::gallery::{self, Found};
use schedlab_study::workbench::SCHEMA;
use schedlab_study::workbench::ask::Question;
use schedlab_study::workbench::named::NamedSchedulers;
use schedlab_study::workbench::overview::{InputsOutput, ListedInput, Look, Opened, worst_of};
use schedlab_study::workbench::picture::PictureOutput;
use schedlab_trace::import::formats::{self, Content};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Files of a folder at most.
const MOST_FILES: usize = 1_000;
/// Dropped files at most, and the bytes of one.
const MOST_DROPPED: (usize, u64) = (16, 256 << 20);
/// Letters of a dropped file's name.
const NAME: usize = 120;

/// A file that can be opened.
#[derive(Debug)]
struct Listed {
    id: String,
    /// As the user names it.
    name: String,
    path: PathBuf,
    about: String,
    longest: Option<u64>,
    looked_at: bool,
    /// What was dropped is in a file without a name, which is gone with this program.
    content: Option<File>,
}

/// What can be opened.
pub(crate) struct Inputs {
    files: Mutex<Vec<Listed>>,
    opened: Cache<Opened>,
    /// Of scenarios, by `id`.
    pictures: Mutex<BTreeMap<String, PictureOutput>>,
    /// What the user named alone.
    first: Option<String>,
    serve: Option<String>,
    /// Schedulers that the user named.
    pub(crate) named: NamedSchedulers,
}

/// Why an input cannot be had: a status of HTTP, and the reason.
pub(crate) type Failure = (u16, String);

/// Says that what was asked for is needed no more.
pub(crate) fn stopped() -> Failure {
    (409, StudyError::Stopped.to_string())
}

/// What is opened to be looked at is read to its end.
static GO_ON: AtomicBool = AtomicBool::new(false);

impl Inputs {
    /// Lists what the user named.
    ///
    /// # Errors
    /// It cannot be opened, or a folder has nothing to open.
    pub(crate) fn new(options: &WorkbenchOptions) -> Result<Inputs, UiError> {
        let (mut files, mut named) = (Vec::new(), Vec::new());
        for input in &options.inputs {
            let path = Path::new(input);
            if path.is_dir() {
                for path in files_of(path)? {
                    list(&mut files, path.display().to_string(), path);
                }
                continue;
            }
            // What is wrong with it is said before the page is open.
            let is_of_gallery = !path.exists() && gallery::load(input).is_some();
            gallery::find(input)?;
            match is_of_gallery {
                true => named.push(format!("{GALLERY}{input}")),
                false => named.push(list(&mut files, input.clone(), path.to_owned())),
            }
        }
        let alone = named.len() == 1 && options.inputs.len() == 1;
        Ok(Inputs {
            files: Mutex::new(files),
            opened: Cache::default(),
            pictures: Mutex::default(),
            first: named.pop().filter(|_| alone),
            serve: options.serve.clone(),
            named: NamedSchedulers::read(options.schedulers.clone(), options.kernel_btf.clone())?,
        })
    }

    fn files(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the files of folders one after the other, until `stop`: the list has the worst
    /// first.
    pub(crate) fn look(&self, stop: &dyn Fn() -> bool) {
        let next = || {
            let files = self.files();
            let next = files.iter().find(|file| !file.looked_at);
            next.map(|file| (file.id.clone(), file.path.clone(), file.name.clone()))
        };
        while let Some((id, path, name)) = next().filter(|_| !stop()) {
            let serve = self.serve.as_deref();
            let found = match self.first.as_ref() == Some(&id) {
                // The page opens it next.
                true => self.open(&id).map_err(|(_, why)| why).and_then(|opened| {
                    let worst = opened.worst(serve);
                    // What is wrong with a server is said when the page asks.
                    let _ = opened.look_ahead(&Look::of_server(serve));
                    worst.map_err(|error| said(&error, &path, &name))
                }),
                false => worst_of(&path, serve).map_err(|error| said(&error, &path, &name)),
            };
            if let Some(file) = self.files().iter_mut().find(|file| file.id == id) {
                file.looked_at = true;
                (file.longest, file.about) = match found {
                    Ok((longest, about)) => (longest, about),
                    Err(why) => (None, why),
                };
            }
        }
    }

    /// Returns what the page asks first: about the recording that the user named alone, as it is.
    pub(crate) fn first_question(&self) -> Option<Question> {
        let input = self.first.clone().filter(|id| !id.starts_with(GALLERY))?;
        let serve = self.serve.iter().map(|serve| ("serve".to_owned(), serve.clone()));
        Some(Question { input, options: serve.collect(), ..Question::default() })
    }

    /// Returns the list.
    pub(crate) fn list(&self, live: bool) -> InputsOutput {
        let files = self.files();
        let mut listed: Vec<ListedInput> = files
            .iter()
            .map(|file| ListedInput {
                id: file.id.clone(),
                name: shown(&file.name).into_owned(),
                about: shown(&file.about).into_owned(),
                longest_wait_ns: file.longest,
            })
            .collect();
        listed.sort_by_key(|file| std::cmp::Reverse(file.longest_wait_ns));
        InputsOutput {
            schema: SCHEMA,
            files: listed,
            complete: files.iter().all(|file| file.looked_at),
            first: self.first.clone(),
            serve: self.serve.clone(),
            gallery: GALLERY_LIST.clone(),
            live,
        }
    }

    /// Keeps what was dropped on the page, in a file without a name. Returns its `id`.
    ///
    /// # Errors
    /// It is too large, too many are kept, or there is no room.
    pub(crate) fn keep(&self, name: &str, content: &mut dyn Read) -> Result<String, Failure> {
        let (count, most) = MOST_DROPPED;
        let dropped = |file: &&Listed| file.content.is_some();
        if self.files().iter().filter(dropped).count() >= count {
            return Err((
                413,
                format!("{count} dropped files are kept: name others on the command line"),
            ));
        }
        let disk = |error: io::Error| (507, format!("the file cannot be kept: {error}"));
        let mut file = unnamed().map_err(disk)?;
        let bytes = io::copy(&mut content.take(most + 1), &mut file).map_err(disk)?;
        if bytes > most {
            return Err((
                413,
                format!("a dropped file has {most} bytes at most: name it on the command line"),
            ));
        }
        Ok(self.add(name, file))
    }

    /// Lists an open file, which is closed with this program. Returns its `id`.
    pub(crate) fn add(&self, name: &str, file: File) -> String {
        let base = name.rsplit('/').next().unwrap_or_default();
        let name: String = shown(base).chars().take(NAME).collect();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut files = self.files();
        let id = list(&mut files, if name.is_empty() { "dropped".to_owned() } else { name }, path);
        if let Some(listed) = files.last_mut() {
            (listed.content, listed.looked_at) = (Some(file), true);
        }
        id
    }

    /// Returns the name of an input as `schedlab compare` takes it, and what to find it by.
    fn place(&self, id: &str) -> Result<(String, String), Failure> {
        if let Some(name) = id.strip_prefix(GALLERY)
            && gallery::load(name).is_some()
        {
            return Ok((name.to_owned(), name.to_owned()));
        }
        let files = self.files();
        let file = files.iter().find(|file| file.id == id);
        file.map(|file| (file.name.clone(), file.path.display().to_string()))
            .ok_or_else(|| (404, "there is no such input: /api/1/inputs lists them".to_owned()))
    }

    /// Returns the name of an input.
    pub(crate) fn name(&self, id: &str) -> Result<String, Failure> {
        self.place(id).map(|(name, _)| name)
    }

    /// Finds an input.
    pub(crate) fn find(&self, id: &str) -> Result<Found, Failure> {
        let (name, path) = self.place(id)?;
        gallery::find(&path).map_err(|error| (422, said(&error, Path::new(&path), &name)))
    }

    /// Returns the path of a recording, and its name; a scenario has no events of its own.
    fn recording(&self, id: &str) -> Result<(PathBuf, String), Failure> {
        match self.find(id)? {
            Found::Recording(path) => Ok((path, self.name(id)?)),
            Found::Scenario(_) => Err((
                422,
                format!("{}: two recordings are compared, and this is a scenario", self.name(id)?),
            )),
        }
    }

    /// Returns two recordings that can be compared.
    pub(crate) fn pair(&self, before: &str, after: &str) -> Result<Pair, Failure> {
        Ok(Pair { before: self.recording(before)?, after: self.recording(after)? })
    }

    /// Returns a small picture of a scenario.
    pub(crate) fn picture(&self, id: &str) -> Result<PictureOutput, Failure> {
        let known = || self.pictures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(picture) = known().get(id) {
            return Ok(picture.clone());
        }
        let Found::Scenario(scenario) = self.find(id)? else {
            return Err((422, "only scenarios have a picture".to_owned()));
        };
        let drawn = PictureOutput::of(&scenario);
        let picture = drawn.map_err(|error| (422, self.said(&error, id)))?;
        known().insert(id.to_owned(), picture.clone());
        Ok(picture)
    }

    /// Opens an input, or returns it from memory.
    pub(crate) fn open(&self, id: &str) -> Result<Arc<Opened>, Failure> {
        let (name, path) = self.place(id)?;
        let opened = self.opened.get(id, &GO_ON, |_| {
            let found = self.find(id)?;
            let scenario = match &found {
                Found::Scenario(scenario) => Some(scenario.clone()),
                Found::Recording(_) => None,
            };
            let recording = schedlab_study::show::open(found, None, None, None)
                .map_err(|error| (422, said(&error, Path::new(&path), &name)))?;
            Ok(Opened::new(id.to_owned(), name.clone(), recording, scenario))
        })?;
        opened.ok_or_else(stopped)
    }

    /// Returns an error as a message for the page: a dropped file has its own name.
    pub(crate) fn said(&self, error: &StudyError, id: &str) -> String {
        match self.place(id) {
            Ok((name, path)) => said(error, Path::new(&path), &name),
            Err(_) => error.to_string(),
        }
    }
}

/// Two recordings that can be compared, each its path and its name.
pub(crate) struct Pair {
    before: (PathBuf, String),
    after: (PathBuf, String),
}

impl Pair {
    /// Compares them as `schedlab diff` does, until `ended`.
    pub(crate) fn diff(&self, ended: Ended<'_>) -> Result<Diff, Failure> {
        let Pair { before, after } = self;
        let named = |text: &str| {
            [before, after].iter().fold(text.to_owned(), |text, (path, name)| {
                text.replace(&path.display().to_string(), name)
            })
        };
        let found = diff_until(&before.0, &after.0, &DiffOptions::default(), ended);
        let mut found = found.map_err(|error| (422, named(&error.to_string())))?;
        found.before.file.clone_from(&before.1);
        found.after.file.clone_from(&after.1);
        let verdict = &mut found.verdict;
        for text in
            [&mut verdict.outcome, &mut verdict.certainty].into_iter().chain(&mut found.notes)
        {
            *text = named(text);
        }
        Ok(found)
    }
}

/// Begins the `id` of a scenario of the gallery.
const GALLERY: &str = "g:";

/// The scenarios of the gallery, which are read once.
static GALLERY_LIST: LazyLock<Vec<ListedInput>> = LazyLock::new(|| {
    let listed = gallery::built_in().iter().filter_map(|(name, _)| {
        let scenario = gallery::load(name)?.ok()?;
        let (id, name) = (format!("{GALLERY}{name}"), (*name).to_owned());
        Some(ListedInput { id, name, about: scenario.title, longest_wait_ns: None })
    });
    listed.collect()
});

fn said(error: &StudyError, path: &Path, name: &str) -> String {
    error.to_string().replace(&path.display().to_string(), name)
}

fn list(files: &mut Vec<Listed>, name: String, path: PathBuf) -> String {
    let id = format!("f{}", files.len());
    files.push(Listed {
        id: id.clone(),
        name,
        path,
        about: String::new(),
        longest: None,
        looked_at: false,
        content: None,
    });
    id
}

/// Returns the recordings and traces of a folder, by name.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, UiError> {
    let failed = |source| UiError::Input { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_recording = path.extension().is_some_and(|end| end == "slt");
        if path.is_file() && (is_recording || is_trace(&path)) {
            files.push(path);
        }
    }
    files.sort();
    files.truncate(MOST_FILES);
    if files.is_empty() { Err(UiError::Empty(folder.to_owned())) } else { Ok(files) }
}

/// Whether a file is a trace of another tool that can be read, by its first bytes. Any text may be
/// one of perf or ftrace: those are opened by name.
fn is_trace(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = schedlab_files::open(path)
        .and_then(|file| file.take(formats::HEAD as u64).read_to_end(&mut head));
    let format = formats::recognise(&head);
    read.is_ok() && format.is_read() && !matches!(format.content, Content::Text | Content::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(names: &[&str]) -> Result<Inputs, UiError> {
        let inputs = names.iter().map(|name| (*name).to_owned()).collect();
        Inputs::new(&WorkbenchOptions { inputs, ..WorkbenchOptions::default() })
    }

    #[test]
    fn a_page_opens_only_what_is_listed() {
        let inputs = inputs(&[]).unwrap();
        for id in ["/etc/passwd", "../x", "f0", "g:../x", "g:/etc/passwd", "g:", ""] {
            assert_eq!(inputs.open(id).err().map(|(status, _)| status), Some(404), "{id}");
        }
        assert!(inputs.open("g:two-hogs").is_ok_and(|opened| opened.scenario.is_some()));
    }

    #[test]
    fn what_was_dropped_has_its_own_name_in_messages() {
        let inputs = inputs(&[]).unwrap();
        let id = inputs.keep("../../a\u{1b}[31m.slt", &mut &b"no recording"[..]).unwrap();
        let (status, said) = inputs.open(&id).err().unwrap();
        assert_eq!(status, 422);
        assert!(said.contains("a\\x1b[31m.slt") && !said.contains("/proc/self"), "{said}");
        for _ in 1..MOST_DROPPED.0 {
            inputs.keep("b", &mut &b"x"[..]).unwrap();
        }
        assert_eq!(inputs.keep("b", &mut &b"x"[..]).err().map(|(status, _)| status), Some(413));
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let inputs = inputs(&[]).unwrap();
        let mut zeros = std::io::repeat(0).take(MOST_DROPPED.1 + 5);
        assert_eq!(inputs.keep("x", &mut zeros).err().map(|(status, _)| status), Some(413));
        assert!(inputs.list(false).files.is_empty());
    }

    #[test]
    fn an_input_that_is_not_there_is_said_at_once() {
        assert!(inputs(&["no-such-thing.slt"]).is_err());
        let one = inputs(&["two-hogs"]).unwrap();
        assert_eq!(one.list(false).first.as_deref(), Some("g:two-hogs"));
        assert!(matches!(inputs(&["src"]), Err(UiError::Empty(_))), "no recording is in src");
    }
}
