//! Records as `schedlab record` does, without the command line: `record OUT CPU SECONDS NOTE [COMMAND…]`
//! (CPU: where the recorder runs; SECONDS 0: until the command ends).
#![allow(clippy::print_stdout)]

use schedlab_host::{RecordRequest, Scope, StopSignal};
use schedlab_lab::record::record;
use schedlab_model::{CpuId, Ns};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, cpu, seconds, note, command @ ..] = &arguments[..] else {
        println!("usage: record OUT CPU SECONDS NOTE [COMMAND...]");
        std::process::exit(2);
    };
    let scope = if command.is_empty() { Scope::All } else { Scope::Command(command.to_vec()) };
    let mut request = RecordRequest::new(scope);
    request.recorder_cpu = cpu.parse().ok().map(CpuId);
    request.duration = seconds.parse().ok().filter(|&s| s > 0).map(Ns::from_s);
    let signal = StopSignal::install().expect("signals can be taken over");
    match record(&request, out.as_ref(), note, &|| signal.requested()) {
        Ok(recorded) => println!("{recorded:?}"),
        Err(error) => {
            println!("{error}");
            std::process::exit(2);
        }
    }
}
