//! A watched file of rules: what it says becomes a new version, once.
//!
//! The file is read again and again, which works on every file system and through symbolic links that are swapped. What
//! is found counts once it is found twice in a row, so a file that is still being written is left alone.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::document::{DOCUMENT_BYTES_MAX, Document, Form};
use crate::metrics::Metrics;
use crate::rules::RuleSets;

/// How often the file is read.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// What was found in the file: its bytes, or why it cannot be read.
type Found = Result<Vec<u8>, String>;

/// What a watcher remembers.
#[derive(Debug, Default)]
struct Watch {
    /// Found last.
    last: Option<Found>,
    /// Found twice in a row, and judged.
    settled: Option<Found>,
    /// What the file says, if it is good.
    document: Option<Document>,
    /// Whether the store has not been told of it yet.
    is_untold: bool,
}

impl Watch {
    /// Takes in what was found. If it settled on something with errors, returns these.
    fn see(&mut self, found: Found) -> Vec<String> {
        let is_still = self.last.as_ref() == Some(&found);
        let is_known = self.settled.as_ref() == Some(&found);
        self.last = Some(found.clone());
        if !is_still || is_known {
            return Vec::new();
        }
        self.settled = Some(found.clone());
        let read = found.map_err(|error| vec![error]).and_then(|bytes| {
            let errors = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
            Document::read(&bytes, Form::Either).map_err(errors)
        });
        self.is_untold = read.is_ok();
        match read {
            Ok(document) => {
                self.document = Some(document);
                Vec::new()
            }
            Err(errors) => {
                self.document = None;
                errors
            }
        }
    }
}

/// Watches the file at `path` until it is aborted, and puts what it says into `rules`. A file that is no good is logged
/// with every error, counted, and changes nothing.
pub async fn watch(path: String, rules: Arc<RuleSets>, metrics: Arc<Metrics>) {
    let path: Arc<str> = path.into();
    let mut watch = Watch::default();
    let mut ticks = interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let for_task = Arc::clone(&path);
        let Ok(found) = spawn_blocking(move || read(&for_task)).await else { continue };
        let wrong = watch.see(found.map_err(|error| format!("cannot be read: {error}")));
        if !wrong.is_empty() {
            metrics.rules_file_errors.inc();
            tracing::error!(file = %path, errors = wrong.len(), "the rules file is not good; what ran before runs on");
            for error in wrong {
                tracing::error!(file = %path, "{error}");
            }
        }
        if let Some(document) = watch.document.as_ref().filter(|_| watch.is_untold || rules.is_missing()) {
            match rules.put_file(document).await {
                Ok(Some(version)) => tracing::info!(file = %path, version, "the rules file was put"),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(file = %path, %error, "the rules file waits for the store");
                    metrics.rules_file_taken.set(0);
                    continue;
                }
            }
            watch.is_untold = false;
        }
        metrics.rules_file_taken.set(i64::from(watch.document.is_some()));
    }
}

/// The file's bytes; if it is too large, just enough of them to tell.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "rules:\n- {name: a, key: [client_address], rate: 5/s}\n";

    /// Looks at a file of this `text`.
    fn see(watch: &mut Watch, text: &str) -> Vec<String> {
        watch.see(Ok(text.as_bytes().to_vec()))
    }

    #[test]
    fn what_is_found_counts_the_second_time_and_once() {
        let mut watch = Watch::default();
        for (text, is_untold) in [("ru", false), (GOOD, false), (GOOD, true), (GOOD, true)] {
            assert!(see(&mut watch, text).is_empty(), "half a file is not judged");
            assert_eq!(watch.is_untold, is_untold);
        }
        watch.is_untold = false;
        see(&mut watch, GOOD);
        assert!(!watch.is_untold, "told once");
        for _ in 0..2 {
            see(&mut watch, &GOOD.replace('5', "6"));
        }
        assert!(watch.is_untold);
    }

    #[test]
    fn every_error_is_told_once() {
        let mut watch = Watch::default();
        let mut told = Vec::new();
        for _ in 0..4 {
            told.extend(see(&mut watch, "rules:\n- {name: A, key: [client_address], rate: fast}\n"));
        }
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("rules[0].name: ") && told[1].starts_with("rules[0].rate: "));
        assert!(watch.document.is_none() && !watch.is_untold);
        watch.see(Err("gone".into()));
        assert_eq!(watch.see(Err("gone".into())), ["gone"]);
    }
}
