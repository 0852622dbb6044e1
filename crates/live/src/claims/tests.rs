use super::*;
use crate::RunDir;
use crate::held::Held;
use crate::journal::Journal;
use crate::reserve::Reserve;
use std::process::{Child, Command};

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").spawn().expect("sleep(1)"))
    }
    fn identity(&self) -> Identity {
        threads::identity(self.0.id()).expect("it lives")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Claims by `owner`, with a journal that is there: this file.
fn claims_of(owner: &Identity, journal: &Path) -> Claims {
    Claims::new(journal, "a test", owner, None).expect("a folder")
}

fn journal(name: &str) -> PathBuf {
    let path = schedlab_testing::temp_dir()
        .join(format!("schedlab-claims-test-{}-{name}", std::process::id()));
    fs::write(&path, "").expect("a file of this test");
    path
}

#[test]
fn a_process_has_one_holder_and_its_family_too() {
    let (first, second, target) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let file = journal("one");
    let mut of_first = claims_of(&first.identity(), &file);
    let mut of_second = claims_of(&second.identity(), &file);
    of_first.take(&target.identity()).expect("it is free");
    of_first.take(&target.identity()).expect("it has it");
    let refused = of_second.take(&target.identity()).expect_err("it is taken").to_string();
    let words = [
        format!("process {} (sleep)", target.0.id()),
        format!("process {} (a test)", first.0.id()),
    ];
    assert!(words.iter().all(|word| refused.contains(word.as_str())), "{refused}");
    of_first.release(target.0.id());
    of_second.take(&target.identity()).expect("it was released");
    of_second.release(target.0.id());
    // What descends from a process that another one has belongs to that one, too.
    let parent =
        Sleeper(Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().expect("sh(1)"));
    let child = loop {
        match threads::children(parent.0.id())[..] {
            [child] => break threads::identity(child).expect("it lives"),
            _ => std::thread::yield_now(),
        }
    };
    of_first.take(&parent.identity()).expect("it is free");
    let refused = of_second.take(&child).expect_err("its parent is taken").to_string();
    child.signal(rustix::process::Signal::KILL).expect("a process of this test");
    assert!(refused.contains(&format!("that process {} (sh) started", parent.0.id())), "{refused}");
    of_second.take(&target.identity()).expect("no other has it");
    of_second.release(target.0.id());
    of_first.take(&target.identity()).expect("it is free");
    forget(&file);
    of_second.take(&target.identity()).expect("all claims of that journal were given up");
    forget(&file);
    fs::remove_file(&file).expect("a file of this test");
}

#[test]
fn a_dead_holder_counts_until_its_journal_is_gone() {
    let target = Sleeper::start();
    let file = journal("dead");
    let dead = Sleeper::start().identity();
    claims_of(&dead, &file).take(&target.identity()).expect("it is free");
    let own = threads::identity(std::process::id()).expect("we live");
    let mut own_claims = claims_of(&own, &file.with_extension("own"));
    let refused = own_claims
        .take(&target.identity())
        .expect_err("what it left is not given back")
        .to_string();
    assert!(refused.contains("is dead") && refused.contains("schedlab restore"), "{refused}");
    fs::remove_file(&file).expect("a file of this test");
    own_claims.take(&target.identity()).expect("nothing can give it back any more");
    own_claims.release(target.0.id());
}

/// Who gives back removes the claims last. When it is killed just before that, the next one must
/// not stop at "all is given back".
#[test]
fn what_is_left_of_changes_that_were_given_back_is_removed() {
    let folder = schedlab_files::TempDir::with_prefix("schedlab-claims-").expect("a folder");
    let run_dir = RunDir::at(folder.path()).expect("a run folder");
    let journal = Journal::create(&run_dir, "a test").expect("a journal");
    let (path, target) = (journal.path().to_owned(), Sleeper::start());
    let own = threads::identity(std::process::id()).expect("we live");
    let mut claims = claims_of(&own, &path);
    claims.take(&target.identity()).expect("it is free");
    let mut held = Held::by_owner(journal, Reserve::hold().expect("descriptors"));
    held.memory().set_done().expect("memory");
    assert!(!held.is_over() && read(&claims.folder, &name_of(&target.identity())).is_some());
    held.give_back(Duration::ZERO).expect("nothing fails");
    assert!(held.is_over() && !path.exists());
    assert_eq!(read(&claims.folder, &name_of(&target.identity())), None);
}

#[test]
fn a_later_process_of_the_same_number_is_free() {
    let (holder, target) = (Sleeper::start(), Sleeper::start());
    let file = journal("later");
    let earlier = Identity { started: target.identity().started - 1, ..target.identity() };
    let mut theirs = claims_of(&holder.identity(), &file);
    theirs.take(&earlier).expect("the number of then");
    let own = threads::identity(std::process::id()).expect("we live");
    let mut own_claims = claims_of(&own, &file.with_extension("own"));
    own_claims.take(&target.identity()).expect("the process of now");
    own_claims.release(target.0.id());
    theirs.release(target.0.id());
    fs::remove_file(&file).expect("a file of this test");
}

/// A link of another user keeps no CPU: the holder must be able to manage it.
#[test]
fn a_cpu_is_kept_by_those_only_who_can_manage_it() {
    let holder = |owner: (u32, u64)| Holder {
        boot: threads::boot_id(),
        owner,
        guardian: None,
        journal: None,
        purpose: String::new(),
    };
    let own = threads::identity(std::process::id()).expect("we live");
    let (uid, is_root) =
        (rustix::process::geteuid().as_raw(), rustix::process::geteuid().is_root());
    assert_eq!(can_manage(&holder(key(&own)), uid), is_root);
    assert!(!can_manage(&holder(key(&own)), uid + 1), "it belongs to another user than the folder");
    assert!(!is_of(Path::new("/tmp"), 0), "every user can write there");
    let other = holder((own.process, own.started - 1));
    assert!(!other.counts(), "a dead process keeps no CPU");
}

#[test]
fn of_many_at_the_same_moment_one_has_it() {
    let sleeper = Sleeper::start();
    let target = sleeper.identity();
    let holders: Vec<Sleeper> = (0..4).map(|_| Sleeper::start()).collect();
    let file = journal("race");
    for _ in 0..20 {
        let won: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = holders
                .iter()
                .map(|one| scope.spawn(|| claims_of(&one.identity(), &file).take(&target).is_ok()))
                .collect();
            tries.into_iter().map(|one| usize::from(one.join().expect("no panic"))).sum()
        });
        assert_eq!(won, 1);
        forget(&file);
    }
    fs::remove_file(&file).expect("a file of this test");
}

/// A claim is another user's text, and what is printed of it is pasted into root's shell.
#[test]
fn what_another_user_claims_is_no_command() {
    let own = threads::identity(std::process::id()).expect("we live");
    for owner in [key(&own), (own.process, own.started - 1)] {
        let holder = Holder {
            boot: threads::boot_id(),
            owner,
            guardian: None,
            journal: Some(PathBuf::from(
                "/tmp/x; touch PWN #`touch PWN`'$(touch PWN)/1-2-0.journal",
            )),
            purpose: "a\u{1b}[2Jtest\nerror: forged".repeat(100),
        };
        let text = holder.describe();
        let folder = r"SCHEDLAB_RUN_DIR='/tmp/x; touch PWN #`touch PWN`'\''$(touch PWN)' schedlab";
        assert!(text.contains(folder), "{text}");
        assert!(!text.contains(['\u{1b}', '\n']) && text.chars().count() < 600, "{text}");
    }
}
