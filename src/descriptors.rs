//! Packets over a socket of this machine, with descriptors (`SCM_RIGHTS` in `unix(7)`). Nothing here waits.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that one packet can carry (`SCM_MAX_FD` in `unix(7)`).
const MOST: usize = 253;

/// A new socket that carries whole packets.
pub(crate) fn seqpacket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Two such sockets, connected.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends one packet, whole or not at all.
///
/// # Errors
/// `EAGAIN`: the other end does not read, and the buffer is full. `EPIPE`: it is gone.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
}

/// The next packet: how many bytes are in `buffer`, and whether there were more; and its descriptors, whatever else is wrong.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> (Result<(usize, bool)>, Vec<OwnedFd>) {
    // Room for as many descriptors as there can be: what did not fit would be closed by the kernel, in this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut look = |control: &mut _| net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], control, flags);
    let got = match look(&mut control) {
        // The other end closed without having read everything; what it said before is still to be read.
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
