//! The upstream behind every listener: as quick as it can be, so that it does not hide what the proxy adds.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Its answer to every request.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\nupstream\n";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Starts it in a thread of its own that ends with the process; gives its address. It takes requests
/// without a body, one at a time on each connection.
pub fn start() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no port: {e}"))?;
    let address = listener.local_addr().map_err(|e| format!("no port: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| format!("{address}: {e}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|e| format!("no runtime: {e}"))?;
    thread::spawn(move || runtime.block_on(serve(listener)));
    Ok(address)
}

async fn serve(listener: TcpListener) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut head = Vec::with_capacity(4096);
    while stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
        if head.ends_with(END_OF_HEAD) {
            head.clear();
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
        }
    }
}
