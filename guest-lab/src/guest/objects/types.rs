//! The types of a kernel that is not booted: its vmlinux, out of the image that QEMU boots.

use super::super::kernels::Kernel;
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::path::{Path, PathBuf};

/// `setup_sects`, `payload_offset` and `payload_length` of the image's header
/// (Documentation/arch/x86/boot.rst of the kernel).
const SECTORS: usize = 0x1f1;
const OFFSET: usize = 0x248;
const LENGTH: usize = 0x24c;
/// First bytes of what zstd compressed.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Returns the file with the kernel's types in a folder, written when it is not there yet.
pub(super) fn of(kernel: &Kernel, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("vmlinux");
    if !path.exists() {
        let image = crate::guest::image::read(&kernel.image)?;
        let bytes = unpacked(&image).with_context(|| kernel.image.display().to_string())?;
        let part = folder.join("vmlinux.part");
        std::fs::write(&part, bytes).with_context(|| part.display().to_string())?;
        std::fs::rename(&part, &path).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

fn number(image: &[u8], at: usize) -> Result<usize> {
    let bytes = image.get(at..at + 4).context("the image is cut")?;
    Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
}

/// Returns the program in a compressed image.
fn unpacked(image: &[u8]) -> Result<Vec<u8>> {
    let sectors = usize::from(*image.get(SECTORS).context("the image is cut")?);
    let begin = (sectors + 1) * 512 + number(image, OFFSET)?;
    let end = begin + number(image, LENGTH)?;
    let payload = image.get(begin..end).context("the image is cut")?;
    ensure!(
        payload.starts_with(&ZSTD),
        "the kernel is not compressed with zstd, as Debian's are since 6.16: name its types \
         (/sys/kernel/btf/vmlinux of a machine that runs it) with --kernel-btf"
    );
    // Behind the frame is its length, for the boot.
    let mut bytes = Vec::new();
    zstd::stream::read::Decoder::new(payload)?.single_frame().read_to_end(&mut bytes)?;
    ensure!(bytes.starts_with(b"\x7fELF"), "the image holds no program");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_an_image() {
        let packed = zstd::encode_all(&b"\x7fELF and so on"[..], 1).unwrap();
        let mut image = vec![0; 2048];
        image[SECTORS] = 1;
        image[OFFSET] = 16;
        image[LENGTH] = packed.len() as u8 + 4;
        image.truncate(1024 + 16);
        image.extend(&packed);
        image.extend([13, 0, 0, 0]);
        assert_eq!(unpacked(&image).unwrap(), b"\x7fELF and so on");
        image[1024 + 16] = 0;
        assert!(unpacked(&image).unwrap_err().to_string().contains("zstd"));
        assert!(unpacked(&image[..600]).unwrap_err().to_string().contains("cut"));
    }
}
