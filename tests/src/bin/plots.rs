//! Draws the main scenarios of the simulation: `make plots` writes docs/plots/*.svg.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use weir_tests::simulation::plots::PLOTS;

fn main() -> ExitCode {
    let into = env::args().nth(1).unwrap_or_else(|| "docs/plots".into());
    for plot in PLOTS {
        let path = Path::new(&into).join(plot.file).with_extension("svg");
        let written = plot.svg().and_then(|svg| {
            fs::create_dir_all(&into).and_then(|()| fs::write(&path, svg)).map_err(|error| error.to_string())
        });
        if let Err(error) = written {
            eprintln!("plots: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", path.display());
    }
    ExitCode::SUCCESS
}
