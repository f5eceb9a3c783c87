//! A link does what the fleet's tests rely on.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::*;
use crate::client::{Ask, Client};
use crate::server::Server;

/// One way, in the tests that measure it.
const DELAY: Duration = Duration::from_millis(50);
/// Long enough for what is to come over loopback, were it let.
const MOMENT: Duration = Duration::from_millis(300);
/// Far above what anything takes here.
const LONG: Duration = Duration::from_secs(10);

async fn linked(delay: Duration) -> (Server, Link) {
    let server = Server::upstream().await;
    let link = Link::start(server.address(), delay).await;
    (server, link)
}

/// A raw connection through a link, both of its ends.
async fn pair(link: &Link, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let (near, far) = tokio::join!(TcpStream::connect(link.address()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

async fn bare() -> (TcpListener, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(listener.local_addr().unwrap(), Duration::ZERO).await;
    (listener, link)
}

async fn read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

#[tokio::test]
async fn a_link_slows_down_an_open_connection() {
    let (_server, mut link) = linked(Duration::ZERO).await;
    let mut client = Client::of_port(link.address().port());
    assert_eq!(client.send(&Ask::get("/")).await.text(), "upstream\n");
    link.slow_down(DELAY);
    let asked = Instant::now();
    assert_eq!(client.send(&Ask::get("/")).await.text(), "upstream\n");
    assert!(asked.elapsed() >= DELAY * 2, "only {:?} there and back", asked.elapsed());
}

#[tokio::test]
async fn a_cut_resets_both_sides_and_refuses_until_healed() {
    let (listener, mut link) = bare().await;
    let (near, far) = pair(&link, &listener).await;
    link.cut().await;
    for end in [&near, &far] {
        let error = timeout(LONG, read(end, &mut [0; 8])).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let refused = TcpStream::connect(link.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    link.heal().await;
    let (near, far) = pair(&link, &listener).await;
    near.try_write(b"again").unwrap();
    assert_eq!(timeout(LONG, read(&far, &mut [0; 8])).await.unwrap().unwrap(), 5);
}

#[tokio::test]
async fn a_silent_link_accepts_and_passes_nothing_until_healed() {
    let (listener, mut link) = bare().await;
    let (near, far) = pair(&link, &listener).await;
    link.silence();
    let late = TcpStream::connect(link.address()).await.unwrap();
    near.try_write(b"waits").unwrap();
    assert!(timeout(MOMENT, read(&far, &mut [0; 8])).await.is_err(), "a byte came through");
    assert!(timeout(MOMENT, listener.accept()).await.is_err(), "a connection came through");
    link.heal().await;
    assert_eq!(timeout(LONG, read(&far, &mut [0; 8])).await.unwrap().unwrap(), 5);
    let (came, _) = timeout(LONG, listener.accept()).await.unwrap().unwrap();
    late.try_write(b"too").unwrap();
    assert_eq!(timeout(LONG, read(&came, &mut [0; 8])).await.unwrap().unwrap(), 3);
}
