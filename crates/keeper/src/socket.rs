//! Sockets of messages with descriptors.

use crate::{config::KEEPER_SOCKET, protocol::MAX_DESCRIPTORS};
use rustix::{
    cmsg_space,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, listen,
        recvmsg, sendmsg, socket_with, sockopt::socket_peercred,
    },
};
use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 64;

/// Returns a short path of a file in an open directory: addresses of sockets have at most 107 bytes.
pub(crate) fn path_in(directory: BorrowedFd<'_>, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Creates a listening socket in a directory. It is not readable by others if the umask is 0177.
pub(crate) fn listen_in(directory: BorrowedFd<'_>, name: &str, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = new_socket(kind)?;
    bind(&socket, &SocketAddrUnix::new(path_in(directory, name))?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to the keeper of an open sandbox directory.
pub(crate) fn connect(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketType::SEQPACKET)?;
    connect_to(&socket, &SocketAddrUnix::new(path_in(directory, KEEPER_SOCKET))?)?;
    check_peer(socket.as_fd())?;
    Ok(socket)
}

fn new_socket(kind: SocketType) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Checks that the other side is a process of the same user.
pub(crate) fn check_peer(socket: BorrowedFd<'_>) -> io::Result<()> {
    if socket_peercred(socket)?.uid == rustix::process::geteuid() {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "the other side is a process of another user"))
}

/// Sends one message.
pub(crate) fn send(socket: BorrowedFd<'_>, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    /// Length; 0 at the end of the connection.
    pub(crate) length: usize,
    /// Descriptors.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether the message or its descriptors exceeded the maximum.
    pub(crate) is_truncated: bool,
}

/// Receives one message. Descriptors over the maximum are closed.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let is_truncated = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Received { length: message.bytes, descriptors, is_truncated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SocketFlags, socketpair};
    use std::{fs::File, io::Read, io::Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (a, b) = pair();
        let (reader, writer) = std::io::pipe().unwrap();
        send(a.as_fd(), b"one", &[writer.as_fd()]).unwrap();
        send(a.as_fd(), b"two", &[]).unwrap();
        drop(writer);
        let mut buffer = [0; 16];
        let mut first = receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!((first.length, first.descriptors.len(), first.is_truncated), (3, 1, false));
        assert_eq!(receive(b.as_fd(), &mut buffer).unwrap().descriptors.len(), 0);
        File::from(first.descriptors.remove(0)).write_all(b"x").unwrap();
        let mut text = String::new();
        { reader }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut buffer).unwrap().length, 0);
    }

    #[test]
    fn message_over_the_maximum_is_marked() {
        let (a, b) = pair();
        let null = File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(20))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let many = [null.as_fd(); 20];
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        send(a.as_fd(), &[b'x'; 17], &[]).unwrap();
        let mut buffer = [0; 16];
        assert!(receive(b.as_fd(), &mut buffer).unwrap().is_truncated);
        assert!(receive(b.as_fd(), &mut buffer).unwrap().is_truncated);
        assert!(send(a.as_fd(), b"x", &many).is_err());
    }
}
