//! Packets with file descriptors over a Unix socket (`SCM_RIGHTS` in `unix(7)`). No call blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The maximum number of descriptors in one packet (`SCM_MAX_FD` in `unix(7)`).
const MOST: usize = 253;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

pub fn seqpacket() -> Result<OwnedFd> {
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// Sends one packet, either whole or not at all.
///
/// # Errors
/// `EAGAIN` if the peer does not read and the buffer is full; `EPIPE` if the peer has closed its end.
// ANCHOR: send
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
}
// ANCHOR_END: send

/// Receives a packet. Returns its size and whether it was truncated. Returns descriptors even with an error.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> (Result<(usize, bool)>, Vec<OwnedFd>) {
    // Leave room for the maximum number of descriptors: the kernel would close the rest in this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut look = |control: &mut _| net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], control, flags);
    let got = match look(&mut control) {
        // The peer closed its end before it had read everything. What it sent can still be received.
        Err(Errno::CONNRESET) => look(&mut control),
        got => got,
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    (got.map(|got| (got.bytes, got.flags.contains(ReturnFlags::TRUNC))), descriptors)
}
