//! Work of more than a second shows progress on a terminal and ends at once on Ctrl-C, also inside
//! one program that has no end.

use super::Folder;
use super::terminal::Terminal;
use std::time::Instant;

/// Programs that take hours: what they do in one instant, or in steps of a nanosecond.
const PROGRAMS: [(&str, [&str; 2]); 4] = [
    ("sends", ["\"send c x1000000000\",\"run 1ms\"", "\"receive all c\",\"serve c 1ns\""]),
    ("steps", ["\"run 1ns\",\"yield\"", "\"run 1ns\",\"yield\""]),
    ("sleeps", ["\"run 1ns\",\"sleep 1ns\"", "\"run 1ns\",\"sleep 1ns\""]),
    ("locks", ["\"lock m\",\"run 1ns\",\"unlock m\"", "\"lock m\",\"run 1ns\",\"unlock m\""]),
];

fn scenario([a, b]: [&str; 2], duration: &str) -> String {
    format!(
        "title=\"x\"\nschedulers=[\"rr\"]\nduration=\"{duration}\"\nchannels=[\"c\"]\n\
         locks=[\"m\"]\n[machine]\ncpus=1\n[[task]]\nname=\"a\"\n\
         program=[{a}]\n[[task]]\nname=\"b\"\nprogram=[{b}]\n"
    )
}

#[test]
#[allow(clippy::print_stderr)]
fn progress_comes_and_ctrl_c_ends_it() {
    let folder = Folder::new("long-work");
    for (name, programs) in PROGRAMS {
        let file = folder.write(&format!("{name}.toml"), scenario(programs, "23h"));
        for command in ["compare", "show", "tune --goal \"a share\" --space \"a nice=0,5\""] {
            let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
            let mut terminal = match Terminal::run(&folder.0, &format!("{verb} {file} {rest}"), &[])
            {
                Some(terminal) => terminal,
                None => {
                    return eprintln!("SKIPPED progress_comes_and_ctrl_c_ends_it: no script(1)");
                }
            };
            assert!(terminal.shows("Ctrl-C ends it"), "{name} {command}: {}", terminal.text());
            let pressed = Instant::now();
            terminal.press("\u{3}");
            let text = terminal.ended();
            // A minute is no measure of speed: the work itself takes hours.
            assert!(pressed.elapsed().as_secs() < 60, "{name} {command}: {text}");
        }
    }
}
