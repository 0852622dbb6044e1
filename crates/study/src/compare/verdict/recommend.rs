//! Which row a user should set: the mildest setting of the machine as it is that gains, for
//! certain, nearly what the best setting gains.

use super::telling::Telling;
use crate::deploy::OF_THIS_SYSTEM;
use crate::headline::Figure;
use crate::result::{Row, Study};

/// A setting that gains this part of what the best one gains (as logarithms of the ratios) is good
/// enough when it is milder.
const ENOUGH: f64 = 0.8;
/// ln 100: beyond a hundredth (or a hundredfold) a larger gain is no reason for a harsher setting.
pub(crate) const MOST: f64 = 4.605_170_185_988_092;

/// Returns the place of the recommended row; `None`: no setting gains anything for certain without
/// taking from what the comparison is about first.
pub(super) fn recommended(study: &Study, tellings: &[Telling<'_>]) -> Option<usize> {
    let best = pick(study, tellings, &is_setting)?;
    let here = pick(study, tellings, &|row| is_setting(row) && row.mildness <= OF_THIS_SYSTEM);
    let first = study.headline.first()?;
    let gain = |row: usize| gain(&study.rows[row], first, tellings);
    // Another kernel is asked for where the one that runs cannot do half of it.
    Some(here.filter(|&here| gain(here) >= gain(best) / 2.0).unwrap_or(best))
}

/// Another kernel is worth a word where it is better than the setting of the one that runs by this
/// factor.
const WORTH_A_KERNEL: f64 = 2.0;

/// Returns the place of the row that needs another kernel than the recommended one and is best in
/// the first figure, where it is worth a word.
pub(super) fn with_another_kernel(study: &Study, chosen: usize) -> Option<usize> {
    let first = study.headline.first()?;
    let value = |row: usize| first.cell(&study.rows[row]).map(|cell| cell.value.median);
    let mine = value(chosen)
        .filter(|mine| *mine > 0.0 && study.rows[chosen].mildness <= OF_THIS_SYSTEM)?;
    let better = |of: f64| first.metric.is_better(of - mine) == Some(true);
    let far = |of: f64| (of.max(1.0) / mine).ln().abs();
    let others = (1..study.rows.len()).filter(|&row| {
        let row = &study.rows[row];
        is_setting(row) && row.mildness > OF_THIS_SYSTEM
    });
    let gains =
        others.filter_map(|row| value(row).filter(|of| better(*of)).map(|of| (row, far(of))));
    let best =
        gains.filter(|(_, far)| *far >= WORTH_A_KERNEL.ln()).max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(best.0)
}

/// Whether it can be set on the machine of the first row, under its load.
fn is_setting(row: &Row) -> bool {
    row.bound.is_none() && row.load.is_none()
}

/// Returns the place of the best bound.
pub(super) fn bound(study: &Study, tellings: &[Telling<'_>]) -> Option<usize> {
    pick(study, tellings, &|row| row.bound.is_some())
}

fn pick(study: &Study, tellings: &[Telling<'_>], allowed: &dyn Fn(&Row) -> bool) -> Option<usize> {
    let first = study.headline.first()?;
    let same = |figure: &&Figure| figure.kind == first.kind && figure.subject == first.subject;
    let primary: Vec<&Figure> = study.headline.iter().filter(same).collect();
    let all: Vec<&Figure> = study.headline.iter().collect();
    mildest(study, tellings, &primary, allowed).or_else(|| {
        let takes = |row: &Row| primary.iter().any(|figure| gain(row, figure, tellings) < 0.0);
        mildest(study, tellings, &all, &|row| allowed(row) && !takes(row))
    })
}

/// Returns the mildest row of those that gain enough in each of the figures in which any of them
/// gains, or in the first of these figures where no row gains in all.
fn mildest(
    study: &Study,
    tellings: &[Telling<'_>],
    figures: &[&Figure],
    allowed: &dyn Fn(&Row) -> bool,
) -> Option<usize> {
    let rows: Vec<usize> = (1..study.rows.len()).filter(|&row| allowed(&study.rows[row])).collect();
    let gain = |row: usize, figure: &Figure| gain(&study.rows[row], figure, tellings);
    let best = |figure: &Figure| rows.iter().map(|&row| gain(row, figure)).fold(0.0, f64::max);
    let wanted: Vec<(&Figure, f64)> = figures
        .iter()
        .map(|figure| (*figure, best(figure)))
        .filter(|(_, best)| *best > 0.0)
        .collect();
    let (first, _) = *wanted.first()?;
    let enough = |row: usize, of: &[(&Figure, f64)]| {
        of.iter().all(|(figure, best)| gain(row, figure) >= ENOUGH * best)
    };
    let good = |of: &[(&Figure, f64)]| {
        rows.iter().copied().filter(|&row| enough(row, of)).collect::<Vec<_>>()
    };
    let mut found = good(&wanted);
    if found.is_empty() {
        found = good(&wanted[..1]);
    }
    found.into_iter().min_by(|&a, &b| {
        let mildness = |row: usize| study.rows[row].mildness;
        mildness(a)
            .cmp(&mildness(b))
            .then(gain(b, first).total_cmp(&gain(a, first)))
            .then(a.cmp(&b))
    })
}

/// Returns what a row certainly gains in a figure, as the logarithm of a ratio; negative: it loses.
fn gain(row: &Row, figure: &Figure, tellings: &[Telling<'_>]) -> f64 {
    let is = |t: &&Telling<'_>| {
        std::ptr::eq(t.row, row)
            && t.subject.kind == figure.kind
            && t.subject.name == figure.subject
            && t.cell.metric == figure.metric
    };
    let size = |t: &Telling<'_>| if t.better { t.size.min(MOST) } else { -t.size.min(MOST) };
    tellings.iter().find(is).map_or(0.0, size)
}
