//! Taking memory out of the caches.

/// Writes the lines of `data` back and takes them out of every cache; the next read of each comes
/// from memory. `false`: nothing was done, because no instruction for programs does it here (other
/// machines than x86-64).
pub fn flush<T: Copy>(data: &[T]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        /// CLFLUSH takes lines of 64 bytes on every x86-64 CPU so far (CPUID leaf 1, EBX 15:8).
        const LINE: usize = 64;
        let begin = data.as_ptr().cast::<u8>();
        // Also where `data` does not begin with a line.
        let mut at = 0;
        let end = size_of_val(data);
        // SAFETY: SSE2 is part of x86-64; every address lies within `data`, whose bytes stay what
        // they are.
        unsafe {
            while at < end {
                std::arch::x86_64::_mm_clflush(begin.add(at));
                at += LINE - (begin as usize + at) % LINE;
            }
            // No later read begins before the lines are gone.
            std::arch::x86_64::_mm_mfence();
        }
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = data;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flushed_is_as_it_was() {
        let data: Vec<u32> = (0..10_000).collect();
        // Odd beginnings and ends, and nothing.
        for part in [&data[..], &data[1..17], &data[3..4], &data[..0]] {
            assert_eq!(flush(part), cfg!(target_arch = "x86_64"));
        }
        assert!(data.iter().enumerate().all(|(i, value)| i as u32 == *value));
    }
}
