use super::*;
use tokio::io::AsyncWriteExt;

fn headers(name: &str, value: &str) -> Headers {
    vec![(name.to_owned(), value.to_owned())]
}

fn pair() -> (Session, Session) {
    let (a, b) = tokio::io::duplex(1 << 12);
    (Session::new(a, Role::Client), Session::new(b, Role::Server))
}

/// Echoes the data of every stream, and closes a stream after its FIN.
fn echo(mut server: Session) {
    tokio::spawn(async move {
        while let Some(stream) = server.next().await {
            stream.accept();
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
}

#[tokio::test]
async fn streams_are_bidirectional_and_half_close() {
    let (client, server) = pair();
    echo(server);
    let sizes = [0, 1, 100, 40_000, 1_000_000];
    let all = sizes.map(|size| {
        let client = &client;
        async move {
            let stream = client.open(headers("streamtype", "stdin")).await.unwrap();
            let sent: Vec<u8> = (0..size).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
            let (mut read, mut write) = tokio::io::split(stream);
            let mut received = Vec::new();
            let write = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let (_, n) = tokio::join!(write, read.read_to_end(&mut received));
            assert_eq!((n.unwrap(), received == sent), (sent.len(), true));
        }
    });
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn stream_headers_reach_the_peer() {
    let (client, mut server) = pair();
    let (opened, accepted) = tokio::join!(client.open(headers("port", "8080")), async {
        let stream = server.next().await.unwrap();
        stream.accept();
        stream
    });
    opened.unwrap();
    assert_eq!(accepted.header("port"), Some("8080"));
}

#[tokio::test(start_paused = true)]
async fn open_times_out_without_reply() {
    let (client, _server) = pair();
    assert!(matches!(client.open(Headers::new()).await, Err(SpdyError::NoReply)));
}

#[tokio::test]
async fn streams_end_with_the_connection() {
    let (client, mut server) = pair();
    let (opened, accepted) = tokio::join!(client.open(Headers::new()), async {
        let stream = server.next().await.unwrap();
        stream.accept();
        stream
    });
    drop((accepted, server));
    let mut rest = Vec::new();
    assert_eq!(opened.unwrap().read_to_end(&mut rest).await.unwrap(), 0);
    assert!(matches!(client.open(Headers::new()).await, Err(SpdyError::Closed)));
}

/// containerd closes a session after the exit status, which resets the connection if it has unread input.
#[tokio::test]
async fn data_sent_before_the_close_is_read() {
    let (a, b) = tokio::io::duplex(4 << 20);
    let (client, mut server) = (Session::new(a, Role::Client), Session::new(b, Role::Server));
    let (opened, accepted) = tokio::join!(client.open(Headers::new()), async {
        let stream = server.next().await.unwrap();
        stream.accept();
        stream
    });
    let (mut accepted, words) = (accepted, vec![7; 2 << 20]);
    accepted.write_all(&words).await.unwrap();
    accepted.shutdown().await.unwrap();
    drop((accepted, server));
    // Data is sent before the stream is read.
    let (mut from, mut to) = tokio::io::split(opened.unwrap());
    let sending = tokio::spawn(async move { while to.write_all(&[1; 1 << 10]).await.is_ok() {} });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut read = Vec::new();
    from.read_to_end(&mut read).await.unwrap();
    sending.await.unwrap();
    assert!(read == words, "{} bytes", read.len());
}

#[tokio::test]
async fn pings_of_the_peer_are_answered() {
    let (transport, mut raw) = tokio::io::duplex(1 << 12);
    let _server = Session::new(transport, Role::Server);
    let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7];
    raw.write_all(&ping).await.unwrap();
    let mut answer = [0; 12];
    raw.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, ping);
}

/// Unread input at the close resets the connection, which would drop the last output.
#[tokio::test(start_paused = true)]
async fn data_is_held_back_until_the_peer_processes_it() {
    let (transport, mut raw) = tokio::io::duplex(16 << 20);
    let client = Session::new(transport, Role::Client);
    let reply = OutgoingFrame::Reply { stream: 1 }.encode(&mut crate::headers::Encoder::new());
    raw.write_all(&reply).await.unwrap();
    let mut stream = client.open(Headers::new()).await.unwrap();
    tokio::spawn(async move { stream.write_all(&vec![0; 4 << 20]).await });
    let mut sent = vec![0; 16 << 20];
    let mut length = 0;
    while let Ok(read) = tokio::time::timeout(Duration::from_secs(1), raw.read(&mut sent[length..])).await {
        length += read.unwrap();
    }
    assert!((32 << 10..33 << 10).contains(&length), "{length} bytes");
}

#[tokio::test(start_paused = true)]
async fn no_data_is_sent_after_the_exit_status() {
    let (transport, mut raw) = tokio::io::duplex(1 << 20);
    let client = Session::new(transport, Role::Client);
    let mut encoder = crate::headers::Encoder::new();
    raw.write_all(&OutgoingFrame::Reply { stream: 1 }.encode(&mut encoder)).await.unwrap();
    let mut stream = client.open(Headers::new()).await.unwrap();
    client.set_final_stream(&stream);
    for frame in [OutgoingFrame::Data { stream: 1, bytes: Bytes::from_static(b"over") }, OutgoingFrame::Ping { id: 2 }]
    {
        raw.write_all(&frame.encode(&mut encoder)).await.unwrap();
    }
    // SYN_STREAM, and the reply to the PING after the exit status.
    let mut sent = Vec::new();
    while !sent.ends_with(&[0, 0, 0, 2]) {
        raw.read_buf(&mut sent).await.unwrap();
    }
    stream.write_all(&[7; 100]).await.unwrap();
    let late = tokio::time::timeout(Duration::from_secs(1), raw.read(&mut [0; 100])).await;
    assert!(late.is_err(), "{late:?}");
}

#[tokio::test]
async fn invalid_frame_ends_the_session() {
    let (transport, mut raw) = tokio::io::duplex(1 << 12);
    let mut server = Session::new(transport, Role::Server);
    raw.write_all(&[0xff; 64]).await.unwrap();
    assert!(server.next().await.is_none());
}
