//! Measures the store on this machine: `cargo run --release -p store --example measure [FOLDER]`.
#![expect(clippy::print_stdout, reason = "prints its results")]

use std::{
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};
use store::{FjallEngine, FjallOptions, Key, Options, Precondition, Scope, Store, Template, Write};

const CREATES: usize = 3000;
const WRITERS: usize = 32;
const WRITES: usize = 1000;
const WATCHERS: usize = 200;
const UPDATES: usize = 300;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "store-measure".to_owned());
    if Path::new(&folder).exists() {
        return Err(format!("{folder} exists: name a folder that can be made and removed").into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = measure(&runtime, Path::new(&folder));
    fs::remove_dir_all(&folder)?;
    measured
}

fn open(folder: &Path) -> Result<Store, Box<dyn Error>> {
    let started = Instant::now();
    let store = Store::open(FjallEngine::open(folder, FjallOptions::default())?, Options::default())?;
    println!("open at revision {}: {:?}", store.revision(), started.elapsed());
    Ok(store)
}

fn measure(runtime: &tokio::runtime::Runtime, folder: &Path) -> Result<(), Box<dyn Error>> {
    let before = resident_kib()?;
    let store = open(folder)?;
    println!("resident: {} KiB for the empty store", resident_kib()? - before);
    runtime.block_on(one_client(&store))?;
    runtime.block_on(many_clients(&store))?;
    lists(&store);
    runtime.block_on(watchers(&store))?;
    println!("resident: {} KiB with {} objects", resident_kib()?, WRITERS * 100 + CREATES);
    drop(store);
    let store = open(folder)?;
    let objects = memory_per_object(runtime, &store)?;
    println!("memory: {objects} bytes for an object of 2 KiB, its event included");
    Ok(())
}

fn write(name: String, bytes: usize) -> Write {
    let key = Key::new("configmaps", "default", name);
    Write::put(key, Precondition::Any, Template::new(vec![b'x'; bytes], 0))
}

async fn one_client(store: &Store) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(CREATES);
    for number in 0..CREATES {
        let started = Instant::now();
        store.write(write(format!("one-{number}"), 1024)).await?;
        times.push(started.elapsed());
    }
    println!("one client: {}", percentiles(times));
    Ok(())
}

async fn many_clients(store: &Store) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let mut clients = Vec::new();
    for client in 0..WRITERS {
        let store = store.clone();
        clients.push(tokio::spawn(async move {
            for number in 0..WRITES {
                store.write(write(format!("many-{client}-{}", number % 100), 1024)).await?;
            }
            Ok::<_, store::WriteError>(())
        }));
    }
    for client in clients {
        client.await??;
    }
    let rate = (WRITERS * WRITES) as f64 / started.elapsed().as_secs_f64();
    println!("{WRITERS} clients: {rate:.0} writes/s");
    Ok(())
}

fn lists(store: &Store) {
    let scope = Scope::resource("configmaps");
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        let listing = store.list(&scope, None, Some(3000));
        times.push(started.elapsed());
        drop(listing);
    }
    println!("list of 3000: {}", percentiles(times));
}

async fn watchers(store: &Store) -> Result<(), Box<dyn Error>> {
    let mut tasks = Vec::new();
    for _ in 0..WATCHERS {
        let mut watch = store.watch(Scope::resource("configmaps"), store.revision())?;
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::with_capacity(UPDATES);
            while times.len() < UPDATES {
                let event = watch.next().await?;
                let sent = event.object.data.get(..8).and_then(|nanos| nanos.try_into().ok());
                let sent = Duration::from_nanos(u64::from_le_bytes(sent.unwrap_or_default()));
                times.push(now().saturating_sub(sent));
            }
            Ok::<_, store::Expired>(times)
        }));
    }
    for _ in 0..UPDATES {
        let key = Key::new("configmaps", "default", "watched");
        store.write(Write::put(key, Precondition::Any, nanos(now()).to_le_bytes())).await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    println!("{WATCHERS} watchers, write to delivery, the sync included: {}", percentiles(times));
    Ok(())
}

fn memory_per_object(runtime: &tokio::runtime::Runtime, store: &Store) -> Result<usize, Box<dyn Error>> {
    let before = resident_kib()?;
    let count = 20_000;
    runtime.block_on(async {
        for number in 0..count {
            store.write(write(format!("memory-{number}"), 2048)).await?;
        }
        Ok::<_, store::WriteError>(())
    })?;
    Ok((resident_kib()? - before) * 1024 / count)
}

fn now() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or_default()
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    format!("p50 {:?}, p90 {:?}, p99 {:?}", at(50), at(90), at(99))
}

fn resident_kib() -> Result<usize, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
