//! The native limit of scenario 2: threads that share a set under one lock.
//!
//! `shared-set --workers 8 --seconds 5` prints one JSON object: operations, seconds of the measured window, inserts,
//! duplicates, and the time from requesting the lock until holding it.

use std::collections::HashSet;
use std::env;
use std::process::ExitCode;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const IDS: u64 = 10_000_000;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const USAGE: &str = "usage: shared-set --workers N --seconds S";

/// The generator of every worker (Steele, Lea and Flood, 2014), seeded by its index.
struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    fn new(index: u64) -> Self {
        Self { state: 0xC0_FFEE ^ (index + 1).wrapping_mul(GOLDEN) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// What a worker did in the window; waits in nanoseconds.
#[derive(Default)]
struct Tally {
    ops: u64,
    inserts: u64,
    wait_ns: u64,
    longest_wait_ns: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.ops += other.ops;
        self.inserts += other.inserts;
        self.wait_ns += other.wait_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(other.longest_wait_ns);
    }
}

/// Draw an id, take the lock, insert it if it is new; until `window` has passed since this worker began.
fn work(index: u64, seen: &Mutex<HashSet<u64>>, window: Duration) -> Tally {
    let mut ids = SplitMix64::new(index);
    let mut tally = Tally::default();
    let began = Instant::now();
    while began.elapsed() < window {
        let id = ids.next() % IDS;
        let requested = Instant::now();
        let mut held = seen.lock().expect("no worker panics while it holds the lock");
        let waited_ns = requested.elapsed().as_nanos() as u64;
        if !held.contains(&id) {
            held.insert(id);
            tally.inserts += 1;
        }
        drop(held);
        tally.ops += 1;
        tally.wait_ns += waited_ns;
        tally.longest_wait_ns = tally.longest_wait_ns.max(waited_ns);
    }
    tally
}

/// All workers, released together; what they did, and the seconds from when the first began until the last was done.
fn run(workers: u64, window: Duration) -> (Tally, f64) {
    let seen = Mutex::new(HashSet::new());
    let barrier = Barrier::new(workers as usize);
    let done: Vec<_> = thread::scope(|scope| {
        let (seen, barrier) = (&seen, &barrier);
        let timed_work = move |index| {
            barrier.wait();
            let began = Instant::now();
            (began, work(index, seen, window), Instant::now())
        };
        let threads: Vec<_> = (0..workers).map(|index| scope.spawn(move || timed_work(index))).collect();
        threads.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
    });
    let began = done.iter().map(|(began, ..)| *began).min().expect("there is a worker");
    let ended = done.iter().map(|(.., ended)| *ended).max().expect("there is a worker");
    let mut total = Tally::default();
    done.iter().for_each(|(_, tally, _)| total.add(tally));
    (total, ended.duration_since(began).as_secs_f64())
}

/// The arguments, each once; None if they are not as in `USAGE`.
fn arguments() -> Option<(u64, Duration)> {
    let (mut workers, mut seconds) = (None, None);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--workers" => workers = words.next()?.parse::<u64>().ok().filter(|&count| count > 0),
            "--seconds" => seconds = words.next()?.parse::<f64>().ok().filter(|&time| time > 0.0),
            _ => return None,
        }
    }
    Some((workers?, Duration::try_from_secs_f64(seconds?).ok()?))
}

fn main() -> ExitCode {
    let Some((workers, window)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (total, seconds) = run(workers, window);
    println!(
        "{{\"ops\": {0}, \"seconds\": {seconds:.9}, \"counters\": {{\"inserts\": {1}, \"duplicates\": {2}}}, \
         \"timers\": {{\"lock_wait\": {{\"count\": {0}, \"total_ns\": {3}, \"max_ns\": {4}}}}}}}",
        total.ops,
        total.inserts,
        total.ops - total.inserts,
        total.wait_ns,
        total.longest_wait_ns
    );
    ExitCode::SUCCESS
}
