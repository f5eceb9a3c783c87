//! A link between two parts of the fleet: a TCP proxy on loopback that takes its time, and that a test
//! can cut, silence, slow down and heal.
//!
//! Data that is under way while a link is silent waits, as TCP keeps sending it again, and arrives late when
//! the link is healed. Every buffer is bounded: a link that is full reads no further.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::port;
use crate::wait::until;

/// The most that is read at once, in bytes.
const CHUNK_BYTES_MAX: usize = 16 * 1024;
/// The most chunks that one direction of a connection holds.
const CHUNKS_MAX: usize = 64;
/// The most connections that a link carries; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// A link to one address. Dropping it cuts it.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    target: SocketAddr,
    state: watch::Sender<State>,
    /// None while the link is cut.
    carrier: Option<Carrier>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug)]
struct State {
    passes: bool,
    /// Its delay one way.
    delay: Duration,
}

/// The listener and its connections.
#[derive(Debug)]
struct Carrier {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Link {
    /// A link to `target`, which need not be there yet. What is sent arrives `delay` later, either way.
    pub async fn start(target: SocketAddr, delay: Duration) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port::free()).into();
        let state = watch::Sender::new(State { passes: true, delay });
        let mut link = Self { address, target, state, carrier: None };
        link.heal().await;
        link
    }

    /// Its address; the same after every cut.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets every connection, on both sides, and refuses new ones. All of that has happened when it returns.
    pub async fn cut(&mut self) {
        if let Some(Carrier { stop, task }) = self.carrier.take() {
            drop(stop);
            task.await.unwrap_or_else(|e| panic!("a link broke by itself: {e}"));
        }
    }

    /// From now on accepts and reads, but passes nothing on: no byte, no new connection, no end of one.
    pub fn silence(&mut self) {
        self.state.send_modify(|state| state.passes = false);
    }

    /// From now on what is sent arrives `delay` later, either way; what is under way keeps its time.
    pub fn slow_down(&mut self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Carries again: what waited in silence goes on, and a cut link takes connections.
    pub async fn heal(&mut self) {
        self.state.send_modify(|state| state.passes = true);
        if self.carrier.is_none() {
            // A program that another test starts just now holds a copy of the last listener until it runs.
            let listener = until("the link's port", async || TcpListener::bind(self.address).await.ok()).await;
            let (stop, stopped) = oneshot::channel();
            let task = tokio::spawn(accept(listener, self.target, self.state.subscribe(), stopped));
            self.carrier = Some(Carrier { stop, task });
        }
    }
}

/// Carries connections until `stopped` resolves.
async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Receiver<State>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                if let Ok((near, _)) = accepted {
                    connections.spawn(carry(End::new(near), target, state.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    // New ones are refused before the old ones end, or they would come back in between.
    drop(listener);
    connections.shutdown().await;
}

/// One end of a connection: closed by a reset, unless both directions came to their end.
struct End {
    socket: TcpStream,
    finished: bool,
}

impl End {
    fn new(socket: TcpStream) -> Self {
        // A delay of its own making would add to the link's.
        let _ = socket.set_nodelay(true);
        Self { socket, finished: false }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.finished {
            // Fails only where the connection is gone already.
            let _ = self.socket.set_zero_linger();
        }
    }
}

async fn carry(mut near: End, target: SocketAddr, mut state: watch::Receiver<State>) {
    passing(&mut state).await;
    let mut far = TcpStream::connect(target).await.map(End::new);
    if let Ok(far) = &mut far {
        join(&mut near, far, &state).await;
    }
    // No end is passed on while the link is silent.
    passing(&mut state).await;
}

/// Waits while the link is silent.
async fn passing(state: &mut watch::Receiver<State>) {
    // Fails where the link is gone, and then the task that asks goes at once too.
    let _ = state.wait_for(|state| state.passes).await;
}

/// Both directions, up to their ends or to a reset.
async fn join(near: &mut End, far: &mut End, state: &watch::Receiver<State>) {
    let (near_in, near_out) = near.socket.split();
    let (far_in, far_out) = far.socket.split();
    let there = pump(near_in, far_out, state.clone());
    let back = pump(far_in, near_out, state.clone());
    let whole = tokio::try_join!(there, back).is_ok();
    (near.finished, far.finished) = (whole, whole);
}

/// Some bytes and when they are due; none at all is the end.
type Chunk = (Instant, Vec<u8>);

/// One direction of a connection, up to its end.
async fn pump(from: ReadHalf<'_>, to: WriteHalf<'_>, state: watch::Receiver<State>) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    tokio::try_join!(take(from, sender, state.clone()), give(receiver, to, state)).map(drop)
}

async fn take(from: ReadHalf<'_>, sender: mpsc::Sender<Chunk>, state: watch::Receiver<State>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    loop {
        from.readable().await?;
        let chunk = match from.try_read(&mut buffer) {
            Ok(length) => buffer.get(..length).unwrap_or_default().to_vec(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let (end, due) = (chunk.is_empty(), Instant::now() + state.borrow().delay);
        if sender.send((due, chunk)).await.is_err() || end {
            return Ok(());
        }
    }
}

async fn give(
    mut receiver: mpsc::Receiver<Chunk>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    while let Some((due, chunk)) = receiver.recv().await {
        sleep_until(due).await;
        passing(&mut state).await;
        if chunk.is_empty() {
            return poll_fn(|context| Pin::new(&mut to).poll_shutdown(context)).await;
        }
        write(&to, &chunk).await?;
    }
    Ok(())
}

async fn write(to: &WriteHalf<'_>, mut chunk: &[u8]) -> io::Result<()> {
    while !chunk.is_empty() {
        to.writable().await?;
        match to.try_write(chunk) {
            Ok(written) => chunk = chunk.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
