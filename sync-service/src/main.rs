//! The binary: reads the configuration, starts the logs, serves until a signal; or judges a file of rules.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::fmt;
use weir_sync::config::{self, Config, LogFormat};
use weir_sync::secrets::Secrets;
use weir_sync::server::{self, Listening, RunError};
use weir_sync::{check, explain};

fn main() -> ExitCode {
    let matches = config::command().get_matches();
    let page = match matches.subcommand() {
        Some((check::NAME, matches)) => Some(check::run(matches)),
        Some((explain::NAME, matches)) => Some(explain::run(matches)),
        _ => None,
    };
    if let Some(page) = page {
        return match page {
            Ok(page) => {
                // The reader may have closed the pipe.
                let _ = write!(std::io::stdout(), "{page}");
                ExitCode::SUCCESS
            }
            Err(errors) => {
                eprintln!("{errors}");
                ExitCode::from(2)
            }
        };
    }
    let loaded = match config::load(&matches, std::env::vars_os()) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(2);
        }
    };
    if loaded.check {
        for warning in &loaded.warnings {
            eprintln!("warning: {warning}");
        }
        if let Err(error) = try_store(&loaded.config) {
            eprintln!("weir-sync: {error}");
            return ExitCode::FAILURE;
        }
        println!("the configuration is good");
        return ExitCode::SUCCESS;
    }
    start_logs(&loaded.config);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match serve(loaded.config, loaded.secrets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-sync: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn try_store(config: &Config) -> Result<(), RunError> {
    server::try_store(config).await
}

fn start_logs(config: &Config) {
    let logs = fmt().with_max_level(config.log_level).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => logs.with_ansi(false).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

fn serve(config: Config, secrets: Secrets) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve_until_signal(config, secrets));
    // Dropping it would wait for a file that is being read, whose disk may not answer.
    runtime.shutdown_background();
    served
}

async fn serve_until_signal(config: Config, secrets: Secrets) -> Result<(), Box<dyn std::error::Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let secrets = Arc::new(secrets);
    let reread = Arc::clone(&secrets);
    let (ready, address) = oneshot::channel();
    let shutdown = async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => {
                    tracing::info!("SIGHUP: reading the token and certificate files again; all other settings need a restart");
                    reread.ask_reread();
                }
            }
        }
    };
    let announce = async {
        if let Ok(Listening { address, ops }) = address.await {
            // For scripts that asked for port 0, as the logs go to stderr. The reader may have closed the pipe.
            let _ = writeln!(std::io::stdout(), "listening on {address}");
            let _ = ops.map(|ops| writeln!(std::io::stdout(), "pages for operators on {ops}"));
        }
    };
    let (result, ()) = tokio::join!(weir_sync::run(config, secrets, ready, shutdown), announce);
    Ok(result?)
}
