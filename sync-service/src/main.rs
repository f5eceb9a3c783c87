//! The binary: reads the configuration, starts logging, and serves until a signal; or runs a command.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::fmt;
use weir_gateway::json;
use weir_sync::config::{self, Config};
use weir_sync::secrets::Secrets;
use weir_sync::server::{self, Listening, RunError};

/// A report allocates many small values, for which mimalloc is faster than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = config::command().get_matches();
    if let Some((name, matches)) = matches.subcommand() {
        return weir_cli::run(name, matches, config::command(), json::request);
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
    if config.log_json {
        logs.json().flatten_event(true).init();
    } else {
        logs.with_ansi(false).init();
    }
}

fn serve(config: Config, secrets: Secrets) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::new()?;
    let served = runtime.block_on(serve_until_signal(config, secrets));
    // Dropping the runtime would wait for a file read on a disk that may not answer.
    runtime.shutdown_background();
    served
}

async fn serve_until_signal(config: Config, secrets: Secrets) -> Result<(), Box<dyn std::error::Error>> {
    let [terminate, interrupt, hangup] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut signals = [signal(terminate)?, signal(interrupt)?, signal(hangup)?];
    let secrets = Arc::new(secrets);
    let reread = Arc::clone(&secrets);
    let (ready, address) = oneshot::channel();
    let (stop, is_stopped) = oneshot::channel();
    let shutdown = async {
        // An error would mean that the sender is gone, as after a second signal.
        let _ = is_stopped.await;
    };
    let stopped_twice = async {
        stopped(&mut signals, &reread).await;
        let _ = stop.send(());
        stopped(&mut signals, &reread).await;
    };
    let announce = async {
        if let Ok(Listening { address, ops, grpc }) = address.await {
            // For scripts that set port 0, since the logs go to stderr. The reader may have closed the pipe.
            let _ = writeln!(std::io::stdout(), "listening on {address}");
            let _ = ops.map(|ops| writeln!(std::io::stdout(), "pages for operators on {ops}"));
            let _ = grpc.map(|grpc| writeln!(std::io::stdout(), "gRPC on {grpc}"));
        }
    };
    let serving = async { tokio::join!(weir_sync::run(config, secrets, ready, shutdown), announce).0 };
    tokio::select! {
        result = serving => Ok(result?),
        () = stopped_twice => {
            tracing::warn!("a second signal: stopped at once");
            Ok(())
        }
    }
}

/// Waits for a signal to stop; meanwhile reads `secrets` again on SIGHUP.
async fn stopped(signals: &mut [Signal; 3], secrets: &Secrets) {
    let [terminate, interrupt, hangup] = signals;
    loop {
        tokio::select! {
            _ = terminate.recv() => return,
            _ = interrupt.recv() => return,
            _ = hangup.recv() => {
                tracing::info!("SIGHUP: reading the token and certificate files again; all other settings need a \
                    restart");
                secrets.ask_reread();
            }
        }
    }
}
