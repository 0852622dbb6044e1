//! `--matrix`: what `latency --matrix` measured in each kernel, merged by the program itself into
//! one table and one page.

use super::kernels::Kernel;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The test that measures.
pub(super) const TEST: &str = "matrix";

/// Merges the kernels' results, the first one as what the others are compared with; the page is
/// `matrix.html` in `work`.
pub(super) fn merge(program: &Path, kernels: &[Kernel], runs: &Path, work: &Path) -> Result<()> {
    let page = work.join("matrix.html");
    let arguments = arguments(kernels, runs);
    let mut command = Command::new(program);
    command.args(["latency", "merge"]).args(&arguments).arg("--report").arg(&page);
    let status = command.status().with_context(|| program.display().to_string())?;
    ensure!(status.success(), "the results cannot be merged ({status}): {}", arguments.join(" "));
    println!("the page: {}", page.display());
    Ok(())
}

/// `6.12-rt=FILE` for each kernel.
fn arguments(kernels: &[Kernel], runs: &Path) -> Vec<String> {
    let file = |kernel: &Kernel| -> PathBuf {
        runs.join(&kernel.release).join(TEST).join(TEST).join("matrix.json")
    };
    kernels.iter().map(|kernel| format!("{}={}", kernel.name, file(kernel).display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_a_system_under_the_name_that_was_asked_for() {
        let kernel = |name: &str, release: &str| Kernel {
            name: name.to_owned(),
            release: release.to_owned(),
            image: PathBuf::new(),
        };
        let kernels = [kernel("6.12", "6.12.1-amd64"), kernel("6.12-rt", "6.12.1-rt-amd64")];
        let expected = [
            "6.12=r/6.12.1-amd64/matrix/matrix/matrix.json",
            "6.12-rt=r/6.12.1-rt-amd64/matrix/matrix/matrix.json",
        ];
        assert_eq!(arguments(&kernels, Path::new("r")), expected);
    }
}
