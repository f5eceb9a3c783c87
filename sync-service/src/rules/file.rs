//! Watched file of rules. Each change of it becomes one new version.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use weir_cli::document::{DOCUMENT_BYTES_MAX, Document, Form, source};

use super::{ChangeError, RuleSets};
use crate::metrics::Metrics;
use crate::secrets::{READ_INTERVAL, Settling};
use crate::ticks;

#[derive(Debug, Default)]
struct Watch {
    /// Content of the file, or the reason why it cannot be read.
    found: Settling<Result<Vec<u8>, String>>,
    /// Parsed content, if it is valid.
    document: Option<Document>,
    /// True until the content was put into the store.
    is_new: bool,
    /// True while the content waits for the end of a canary.
    waits: bool,
}

impl Watch {
    /// Applies what was read. Returns the errors if the file has settled and is invalid.
    fn see(&mut self, found: Result<Vec<u8>, String>) -> Vec<String> {
        let Some(found) = self.found.see(found) else { return Vec::new() };
        let read = found.map_err(|error| vec![error]).and_then(|bytes| {
            let errors = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
            Document::read(&bytes, Form::Either).map_err(errors)
        });
        let mut errors = Vec::new();
        self.document = read.map_err(|found| errors = found).ok();
        self.is_new = self.document.is_some();
        errors
    }
}

/// Watches the file at `path` until the task is aborted, and puts its content into `rules`. An invalid file changes
/// nothing; it is counted, and logged with every error.
pub(crate) async fn watch(path: String, rules: Arc<RuleSets>, metrics: Arc<Metrics>) {
    let path: Arc<str> = path.into();
    let mut watch = Watch::default();
    let mut ticks = ticks(READ_INTERVAL);
    loop {
        ticks.tick().await;
        let for_task = Arc::clone(&path);
        let Ok(found) = spawn_blocking(move || source::read_file(&for_task, DOCUMENT_BYTES_MAX)).await else {
            continue;
        };
        let wrong = watch.see(found.map_err(|error| format!("cannot be read: {error}")));
        if !wrong.is_empty() {
            metrics.rules_file_errors.inc();
            tracing::error!(file = %path, errors = wrong.len(), "the rules file is invalid; the previous rules stay \
                in force");
            for error in wrong {
                tracing::error!(file = %path, "{error}");
            }
        }
        if let Some(document) = watch.document.as_ref().filter(|_| watch.is_new || rules.is_missing()) {
            match rules.put_file(document).await {
                Ok(_) => {}
                Err(error) => {
                    let waits = matches!(error, ChangeError::Canary(_));
                    if waits && !watch.waits {
                        tracing::warn!(file = %path, "a canary runs: the rules file is put once that is promoted or \
                            withdrawn");
                    } else {
                        tracing::debug!(file = %path, %error, "the rules file is not stored yet");
                    }
                    watch.waits = waits;
                    metrics.rules_file_applied.set(0);
                    continue;
                }
            }
            (watch.is_new, watch.waits) = (false, false);
        }
        metrics.rules_file_applied.set(i64::from(watch.document.is_some()));
    }
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
    fn a_file_counts_once_and_when_read_twice_alike() {
        let mut watch = Watch::default();
        for (text, is_new) in [("ru", false), (GOOD, false), (GOOD, true), (GOOD, true)] {
            assert!(see(&mut watch, text).is_empty(), "half a file is not read");
            assert_eq!(watch.is_new, is_new);
        }
        watch.is_new = false;
        see(&mut watch, GOOD);
        assert!(!watch.is_new, "new once");
        for _ in 0..2 {
            see(&mut watch, &GOOD.replace('5', "6"));
        }
        assert!(watch.is_new);
    }
}
