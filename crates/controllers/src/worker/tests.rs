use super::*;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use tokio::sync::watch;

/// State of the test controller, shared with the test.
#[derive(Default)]
struct Log {
    /// Keys that are being reconciled.
    running: HashSet<String>,
    /// Number of finished reconciles by key.
    finished: HashMap<String, usize>,
    /// Number of started reconciles by key.
    started: HashMap<String, usize>,
}

/// Reconciles a key as its name says.
struct Fake<const WORKERS: usize> {
    log: Arc<watch::Sender<Mutex<Log>>>,
}

/// Removes the key from those that are being reconciled, also when the reconcile is abandoned.
struct Running<'a>(&'a watch::Sender<Mutex<Log>>, &'a str);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|log| assert!(log.lock().running.remove(self.1)));
    }
}

/// Panics when the reconcile is abandoned.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("as the test wants");
    }
}

impl<const WORKERS: usize> Controller for Fake<WORKERS> {
    type Event = String;
    const NAME: &'static str = "fake";
    const WORKERS: usize = WORKERS;

    fn observe(&self, event: String, _: Instant) -> Vec<String> {
        vec![event]
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let mut count = 0;
        self.log.send_modify(|log| {
            let mut log = log.lock();
            assert!(log.running.insert(key.to_owned()), "{key} is reconciled twice at a time");
            let started = log.started.entry(key.to_owned()).or_default();
            *started += 1;
            count = *started;
        });
        let _running = Running(&self.log, key);
        match key {
            "slow" => tokio::time::sleep(Duration::from_secs(1)).await,
            "hang" if count == 1 => std::future::pending().await,
            "panic on drop" if count == 1 => {
                let _panic = PanicOnDrop;
                std::future::pending::<()>().await;
            }
            "panic" if count == 1 => panic!("as the test wants"),
            "fail" if count == 1 => return Err(kube::Error::Service("as the test wants".into())),
            _ => tokio::task::yield_now().await,
        }
        self.log.send_modify(|log| *log.lock().finished.entry(key.to_owned()).or_default() += 1);
        Ok((key == "again").then_some(Duration::from_secs(10)))
    }
}

struct FakeController {
    events: UnboundedSender<String>,
    log: Arc<watch::Sender<Mutex<Log>>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start<const WORKERS: usize>() -> FakeController {
    let (events, received) = unbounded();
    let (log, stop) = (Arc::new(watch::Sender::default()), CancellationToken::new());
    let controller = Fake::<WORKERS> { log: Arc::clone(&log) };
    let task = tokio::spawn(run(controller, received.boxed(), stop.clone()));
    FakeController { events, log, stop, task }
}

impl FakeController {
    fn send(&self, key: &str) {
        self.events.unbounded_send(key.to_owned()).unwrap();
    }

    async fn wait_until(&self, condition: impl Fn(&Log) -> bool) {
        self.log.subscribe().wait_for(|log| condition(&log.lock())).await.unwrap();
    }

    async fn wait_finished(&self, key: &str, times: usize) {
        self.wait_until(|log| log.finished.get(key) == Some(&times)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_key_does_not_block_others() {
    let controller = start::<2>();
    controller.send("hang");
    controller.wait_until(|log| log.running.contains("hang")).await;
    let began = Instant::now();
    (0..1000).for_each(|n| controller.send(&format!("key-{n}")));
    controller.wait_until(|log| log.finished.len() == 1000).await;
    controller.wait_until(|log| log.running.contains("hang")).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    // It is abandoned after the timeout, and retried. An event meanwhile does not repeat it earlier.
    controller.send("hang");
    controller.wait_finished("hang", 1).await;
    assert_eq!(began.elapsed(), RECONCILE_TIMEOUT + MIN_DELAY_AFTER_ABANDONED);
}

#[tokio::test(start_paused = true)]
async fn at_most_the_workers_reconcile_concurrently() {
    let controller = start::<1>();
    controller.send("hang");
    controller.send("key");
    let began = Instant::now();
    controller.wait_finished("key", 1).await;
    assert_eq!(began.elapsed(), RECONCILE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn key_changed_during_reconcile_is_reconciled_again() {
    let controller = start::<5>();
    controller.send("slow");
    controller.wait_until(|log| log.running.contains("slow")).await;
    let began = Instant::now();
    (0..3).for_each(|_| controller.send("slow"));
    controller.wait_finished("slow", 2).await;
    assert_eq!(began.elapsed().as_secs(), 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    controller.wait_finished("slow", 2).await;
}

#[tokio::test(start_paused = true)]
async fn failed_and_panicked_keys_are_retried_with_backoff() {
    let controller = start::<2>();
    let began = Instant::now();
    for key in ["fail", "panic"] {
        controller.send(key);
        controller.wait_finished(key, 1).await;
    }
    // The panicked one waits for its requests.
    assert_eq!(began.elapsed().as_millis(), 1005);
}

#[tokio::test(start_paused = true)]
async fn key_of_a_panicked_task_is_retried() {
    let controller = start::<1>();
    let began = Instant::now();
    controller.send("panic on drop");
    controller.wait_finished("panic on drop", 1).await;
    assert_eq!(began.elapsed(), RECONCILE_TIMEOUT + MIN_DELAY_AFTER_ABANDONED);
}

#[tokio::test(start_paused = true)]
async fn requeue_delay_starts_after_the_reconcile() {
    let controller = start::<1>();
    controller.send("again");
    controller.wait_finished("again", 1).await;
    let began = Instant::now();
    controller.wait_finished("again", 4).await;
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn stopped_controller_abandons_its_reconciles() {
    let controller = start::<2>();
    controller.send("hang");
    controller.wait_until(|log| log.running.contains("hang")).await;
    controller.stop.cancel();
    controller.task.await.unwrap();
    assert!(controller.log.borrow().lock().running.is_empty());
}
