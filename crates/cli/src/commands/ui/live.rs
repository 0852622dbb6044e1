//! `schedlab ui --live`: the recorder of `schedlab watch`, for the page.

use crate::commands::record::by_date;
use crate::commands::watch::{LAST, Recorder};
use anyhow::{Context as _, anyhow, bail};
use schedlab_files::spare_folders;
use schedlab_host::privileges::{give_up_all_but, to_write_in};
use schedlab_host::{RecordRequest, RecordUntil};
use schedlab_lab::watch::output::WatchOutput;
use schedlab_lab::watch::{SharedState, WatchFilter, WatchOptions, watch};
use schedlab_ui::Live;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Time between two looks at what the recorder did.
const LOOK: Duration = Duration::from_millis(20);
/// Time after which a recording that is not written is given up: ten seconds of events are written
/// in less than one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watches the machine until it is dropped.
pub(super) struct Watched {
    shared: SharedState,
    stop: Arc<AtomicBool>,
    /// One at a time asks for a recording.
    recorder: Mutex<Option<Recorder>>,
    /// A folder of this user alone. A recording has a name in it until it is open.
    folder: Box<dyn AsRef<Path> + Send + Sync>,
}

impl Watched {
    /// Starts the recorder, and gives up all privileges but in its thread. `asked_to_end`: whether
    /// the user waits no longer.
    ///
    /// # Errors
    /// It cannot record, or there is no folder for what is kept.
    pub(super) fn start(asked_to_end: &dyn Fn() -> bool) -> anyhow::Result<Watched> {
        let folder = spare_folders().next().context("no folder for what is kept")?;
        let duty = to_write_in(folder.path());
        let request = RecordRequest {
            keep: Some(duty.into_iter().collect()),
            ..RecordRequest::new(RecordUntil::Stopped)
        };
        let (shared, stop) = (SharedState::default(), Arc::new(AtomicBool::new(false)));
        let (own, ended) = (shared.clone(), stop.clone());
        let options = WatchOptions { keep: LAST, ..WatchOptions::new(WatchFilter::All) };
        let recorder = spawn(move || watch(&request, options, &own, &|| ended.load(Relaxed)));
        // The recorder's thread has what it needs to open; the server's threads only show.
        give_up_all_but(&[]).context("giving up capabilities (capset)")?;
        while shared.lock().start.is_none() && !recorder.is_finished() {
            if asked_to_end() {
                stop.store(true, Relaxed);
                bail!("ended before the recorder began");
            }
            sleep(LOOK);
        }
        let watched = Watched {
            shared,
            stop,
            recorder: Mutex::new(Some(recorder)),
            folder: Box::new(folder),
        };
        match watched.failure() {
            Some(why) => Err(anyhow!(why)),
            None => Ok(watched),
        }
    }

    /// Returns why the recorder ended; `None`: it goes on.
    fn failure(&self) -> Option<String> {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = recorder.take_if(|recorder| recorder.is_finished());
        match (ended, recorder.is_some()) {
            (_, true) => None,
            (None, false) => Some("the recorder ended".to_owned()),
            (Some(ended), false) => Some(match ended.join() {
                Ok(Ok(_)) => "the recorder ended".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the recorder failed; this is a fault of schedlab".to_owned(),
            }),
        }
    }

    /// Waits until the recorder has written the file that was asked for.
    fn saved(&self) -> Result<PathBuf, String> {
        let began = Instant::now();
        loop {
            if let Some(saved) = self.shared.lock().saved.take() {
                return saved;
            }
            if let Some(why) = self.failure() {
                return Err(why);
            }
            if began.elapsed() > PATIENCE {
                return Err("the recorder wrote nothing: try again".to_owned());
            }
            sleep(LOOK);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        // What it ended with is of no interest any more.
        if let Some(recorder) = recorder.take() {
            let _ = recorder.join();
        }
    }
}

impl Live for Watched {
    fn state(&self) -> Result<String, String> {
        if let Some(why) = self.failure() {
            return Err(why);
        }
        let state = self.shared.lock().clone();
        serde_json::to_string(&WatchOutput::from(&state)).map_err(|error| error.to_string())
    }

    fn keep(&self) -> Result<(String, File), String> {
        let name = by_date();
        let path = (*self.folder).as_ref().join(&name);
        self.shared.lock().saved = None;
        self.shared.save(path);
        let saved = self.saved()?;
        let file = File::open(&saved).map_err(|error| format!("what was kept: {error}"))?;
        // From now on it is gone with this program.
        std::fs::remove_file(&saved).map_err(|error| format!("what was kept: {error}"))?;
        Ok((name.display().to_string(), file))
    }
}
