//! Between the second and the third step: closed loops whose last step no wakeup shows.
//!
//! A client shares its CPU with a server of several threads. It sends, the server takes the CPU at that wakeup, and when the client goes on
//! the reply is there: it never sleeps, so nobody ever wakes it. The recording shows a task that works by itself and wakes others, and has
//! an end. Replayed like this, a server that a scheduler lets run more gets no more requests than were recorded.
//!
//! What tells is that the client never gets ahead: whenever it sends, all who serve it sleep again, so they had done what it sent before. Then it
//! is a task of their loop, and behind each of its messages it needs what they had done when it went on (`prompt`).
//!
//! Only between processes: what passes there goes through a connection or a pipe, which holds little. Threads of one process may have a queue
//! without bound, in which a task that works by itself may get ahead under another scheduler.

use super::SilentClient;
use super::classify::{Classes, ENOUGH, Loop, Outside, RARE_PERCENT, Why};
use super::couple::Link;
use super::prompt::{ANSWERS, Prompt, answers};
use super::timeline::{Line, Origin};
use schedlab_model::{Ns, TaskId};

/// Those who serve the client do so in this part of their activations, and sleep again before this part of its messages (in per cent). Chosen,
/// not fitted: the threads of apache under wrk show 99 and more.
const HABIT_PERCENT: usize = 90;
/// A client's servers have at least this part of its own CPU time (in per cent): a batch job that prints its progress is none. Chosen, not
/// measured: memcached has half of its client's, apache three times as much.
const SERVED_PERCENT: u64 = 25;

/// A client that hardly ever sleeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Client {
    pub(super) task: usize,
    /// Whom it wakes.
    door: usize,
    /// That task, and all whom the others of these wake: ascending.
    pub(super) servers: Vec<usize>,
}

impl Client {
    pub(super) fn described(&self, lines: &[Line]) -> SilentClient {
        let messages = answers(&lines[self.task], self.door).count() as u64;
        SilentClient { task: TaskId::from(self.task), servers: self.servers.len(), messages }
    }
}

/// What is known of a task's home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) process: u32,
    /// A thread of the kernel serves everybody.
    pub(super) kernel: bool,
}

/// Finds the clients. `homes`: of all tasks.
pub(super) fn find(lines: &[Line], classes: &Classes, homes: &[Home]) -> Vec<Client> {
    let mut clients = Vec::new();
    for task in 0..lines.len() {
        let others = |of: &usize| homes[*of].process != homes[task].process && !homes[*of].kernel;
        let door = (0..lines.len()).filter(others).find(|&door| hardly_sleeps(&lines[task], door));
        let Some(door) = door.filter(|_| !homes[task].kernel) else { continue };
        let possible: Vec<usize> = (0..lines.len()).filter(others).collect();
        let servers = servers(lines, task, door, &possible);
        let work: Ns = servers.iter().map(|&server| lines[server].total).sum();
        let client = Client { task, door, servers };
        let apart = !classes.loops.iter().any(|circle| ties(circle, &client) && !circle.closed);
        let together =
            classes.loops.iter().any(|circle| [task, door].iter().all(|of| circle.tasks.contains(of)));
        if client.servers.contains(&door)
            && work.0 * 100 >= lines[task].total.0 * SERVED_PERCENT
            && apart
            && !together
            && never_ahead(lines, &client)
        {
            clients.push(client);
        }
    }
    clients
}

/// Whether the task wakes that one often, and sleeps far less often.
fn hardly_sleeps(line: &Line, door: usize) -> bool {
    let sent = answers(line, door).count();
    sent >= ANSWERS && line.activations.len() * 100 <= sent * RARE_PERCENT
}

/// All of the possible tasks that work for the client alone: it, or those whom it makes work, begin nearly all that they do.
fn servers(lines: &[Line], client: usize, door: usize, possible: &[usize]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut next = vec![door];
    while !next.is_empty() {
        found.append(&mut next);
        found.sort_unstable();
        let begins = |by: usize| by == client || found.binary_search(&by).is_ok();
        let serves = |task: &usize| {
            let all = &lines[*task].activations;
            let begun =
                all.iter().filter(|a| matches!(a.origin, Origin::Task(by) if begins(by.index()))).count();
            begun >= ENOUGH && begun * 100 >= all.len() * HABIT_PERCENT
        };
        if !serves(&door) {
            return Vec::new();
        }
        next.extend(possible.iter().filter(|task| !found.contains(task) && serves(task)));
    }
    found
}

/// Whether nearly all of the client's messages come when all who serve it sleep.
fn never_ahead(lines: &[Line], client: &Client) -> bool {
    let line = &lines[client.task];
    let before = |at: Ns| line.reached(at).saturating_sub(Ns(1));
    let rest = |at: Ns| client.servers.iter().all(|&server| lines[server].awake_at(at).is_none());
    let (sent, served) = answers(line, client.door)
        .fold((0, 0), |(sent, served), at| (sent + 1, served + usize::from(rest(before(at)))));
    served * 100 >= sent * HABIT_PERCENT
}

/// Whether the client or one of its servers belongs to this circle.
fn ties(circle: &Loop, client: &Client) -> bool {
    let of = |task: &usize| circle.tasks.binary_search(task).is_ok();
    of(&client.task) || client.servers.iter().any(of)
}

/// Makes each client and its servers one closed loop, with all loops that they have a part in.
pub(super) fn join(classes: &mut Classes, clients: &[Client]) {
    for client in clients {
        let mut tasks = vec![client.task];
        tasks.extend(&client.servers);
        let (tied, mut loops): (Vec<Loop>, Vec<Loop>) =
            std::mem::take(&mut classes.loops).into_iter().partition(|circle| ties(circle, client));
        tied.iter().for_each(|circle| tasks.extend(&circle.tasks));
        tasks.sort_unstable();
        tasks.dedup();
        for &task in tasks.iter().filter(|task| classes.openers.binary_search(task).is_err()) {
            classes.outside[task] = Outside::Relative(Why::ClosedLoop);
        }
        loops.push(Loop { tasks, closed: true });
        loops.sort_by(|a, b| a.tasks.cmp(&b.tasks));
        classes.loops = loops;
    }
}

/// What each client needs behind its messages.
pub(super) fn needs(clients: &[Client]) -> impl Iterator<Item = Prompt> + '_ {
    clients.iter().flat_map(|client| {
        let need =
            |&producer: &usize| Prompt { link: Link { producer, consumer: client.task }, wakes: client.door };
        client.servers.iter().map(need)
    })
}

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::super::timeline::{Deed, End};
    use super::*;

    const CLIENT: usize = 0;
    const DOOR: usize = 1;
    const WORKERS: [usize; 2] = [2, 3];
    const BATCH: usize = 4;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    fn begins(lines: &mut [Line], by: usize, task: usize, at: Ns) {
        let number = lines[task].activations.len() as u32;
        let open = lines[by].activations.last_mut().unwrap();
        open.deeds.push((open.demand, Deed::Wake(TaskId::from(task), number)));
        lines[task].begin(Origin::Task(TaskId::from(by)), at, None);
    }

    fn ends(lines: &mut [Line], task: usize) {
        lines[task].activations.last_mut().unwrap().end = End::Blocked(schedlab_model::PrevState::Sleeping);
    }

    /// In each millisecond the client works for 100 us and sends; the door hands that on to one of two workers in 100 us, which needs 300. With `late`
    /// rounds in a hundred the client sends while the worker of the round before has not run.
    fn lines(late: u64) -> Vec<Line> {
        let mut lines = vec![Line::default(); 5];
        [CLIENT, BATCH].iter().for_each(|&task| lines[task].begin(Origin::Initial, Ns::ZERO, None));
        for round in 0..100 {
            let (at, worker) = (us(1_000 * round), WORKERS[(round % 2) as usize]);
            lines[CLIENT].run(at, at + us(100));
            begins(&mut lines, CLIENT, DOOR, at + us(100));
            lines[DOOR].run(at + us(100), at + us(200));
            begins(&mut lines, DOOR, worker, at + us(200));
            ends(&mut lines, DOOR);
            let later = if round % 100 < late { us(1_000) } else { Ns::ZERO };
            lines[worker].run(at + later + us(200), at + later + us(500));
            ends(&mut lines, worker);
            lines[BATCH].run(at + us(500), at + us(1_000));
        }
        lines
    }

    /// Client, door and workers, batch: by process.
    fn homes(of: [u32; 3]) -> Vec<Home> {
        let processes = [of[0], of[1], of[1], of[1], of[2]];
        processes.map(|process| Home { process, kernel: false }).to_vec()
    }

    fn found(lines: &[Line], homes: &[Home]) -> Vec<Client> {
        find(lines, &classify(lines, us(100_000), &[]), homes)
    }

    #[test]
    fn a_client_whose_replies_are_there_is_found_with_all_who_serve_it() {
        let clients = found(&lines(0), &homes([10, 11, 12]));
        assert_eq!(clients, [Client { task: CLIENT, door: DOOR, servers: vec![1, 2, 3] }]);
        assert_eq!(clients[0].described(&lines(0)).messages, 100);
        // A few messages may come early.
        assert_eq!(found(&lines(8), &homes([10, 11, 12])).len(), 1);
    }

    #[test]
    fn who_works_ahead_or_in_the_same_process_or_for_the_kernel_is_no_client() {
        assert_eq!(found(&lines(30), &homes([10, 11, 12])), [], "it sends while its servers have work");
        assert_eq!(found(&lines(0), &homes([10, 10, 12])), [], "a queue of its own process has no bound");
        let mut kernel = homes([10, 11, 12]);
        kernel[DOOR].kernel = true;
        assert_eq!(found(&lines(0), &kernel), []);
    }

    #[test]
    fn a_batch_job_that_prints_its_progress_is_no_client() {
        let mut lines = lines(0);
        // It computes for a millisecond and more between two lines of text.
        lines[CLIENT].total = us(170_000);
        assert_eq!(
            found(&lines, &homes([10, 11, 12])),
            [],
            "who serves it has less than a quarter of its CPU time"
        );
    }

    #[test]
    fn client_and_servers_become_one_closed_loop() {
        let lines = lines(0);
        let mut classes = classify(&lines, us(100_000), &[]);
        assert!(!classes.in_loop(CLIENT));
        let clients = find(&lines, &classes, &homes([10, 11, 12]));
        join(&mut classes, &clients);
        let tied: Vec<&[usize]> = classes.loops.iter().map(|circle| circle.tasks.as_slice()).collect();
        assert_eq!(tied, [&[0, 1, 2, 3][..]]);
        assert!(classes.in_closed_loop(CLIENT) && !classes.in_loop(BATCH));
        assert_eq!(classes.outside[WORKERS[0]], Outside::Relative(Why::ClosedLoop));
        let needs: Vec<(usize, usize, usize)> =
            needs(&clients).map(|need| (need.link.producer, need.link.consumer, need.wakes)).collect();
        assert_eq!(needs, [(1, CLIENT, DOOR), (2, CLIENT, DOOR), (3, CLIENT, DOOR)]);
    }

    #[test]
    fn a_loop_that_the_outside_drives_has_no_such_client() {
        let lines = lines(0);
        let mut classes = classify(&lines, us(100_000), &[]);
        classes.loops.push(Loop { tasks: vec![DOOR, WORKERS[0]], closed: false });
        assert_eq!(find(&lines, &classes, &homes([10, 11, 12])), []);
        // Of one that wakes it now and then it is a part already.
        classes.loops = vec![Loop { tasks: vec![CLIENT, DOOR], closed: true }];
        assert_eq!(find(&lines, &classes, &homes([10, 11, 12])), []);
    }
}
