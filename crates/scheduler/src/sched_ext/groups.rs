//! Walks over control groups (`bpf_iter_css`, kernel/bpf/cgroup_iter.c).

use super::calls::Call;
use super::kernel::Kernel;
use schedlab_bpf::errno::EINVAL;

/// `BPF_CGROUP_ITER_DESCENDANTS_PRE`, `..._POST`, `..._ANCESTORS_UP`.
const PRE: u64 = 2;
const POST: u64 = 3;
const UP: u64 = 4;

/// The models of the iterator's functions.
pub(super) fn walks(name: &str) -> Option<Call> {
    Some(match name {
        "bpf_iter_css_new" => |k, a| {
            let order = k.walk(a[1], a[2] & 0xffff_ffff);
            let answer = if order.is_some() { 0 } else { EINVAL };
            k.css_iters.insert(a[0], order.unwrap_or_default().into_iter());
            Ok(answer)
        },
        "bpf_iter_css_next" => {
            |k, a| Ok(k.css_iters.get_mut(&a[0]).and_then(Iterator::next).unwrap_or(0))
        }
        "bpf_iter_css_destroy" => |k, a| {
            k.css_iters.remove(&a[0]);
            Ok(0)
        },
        _ => return None,
    })
}

impl Kernel {
    /// The `css` of each group from the one at `start` on; `None`: there is no such order.
    fn walk(&self, start: u64, order: u64) -> Option<Vec<u64>> {
        let css = |group: usize| self.groups[group] + self.layout.cgroup_self.0;
        let first = (0..self.groups.len()).find(|group| css(*group) == start);
        let mut found = Vec::new();
        match (order, first) {
            (PRE | POST, Some(first)) => self.below(first, order == PRE, &mut found),
            (UP, Some(first)) => {
                let up = |group: &usize| self.group_parents[*group];
                found.extend(std::iter::successors(Some(first), up));
            }
            (PRE | POST | UP, None) => {}
            _ => return None,
        }
        Some(found.into_iter().map(css).collect())
    }

    /// A group and those below it; groups come after the one above them.
    fn below(&self, group: usize, first: bool, found: &mut Vec<usize>) {
        if first {
            found.push(group);
        }
        for child in group + 1..self.groups.len() {
            if self.group_parents[child] == Some(group) {
                self.below(child, first, found);
            }
        }
        if !first {
            found.push(group);
        }
    }
}
