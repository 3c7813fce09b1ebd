//! The way of log lines to standard error. Who reads there may be slow, stuck or gone, and none of it is the server's
//! matter: lines wait, within a bound, for a thread that writes them; what has no room is lost and counted. Knows nothing
//! of what a line says.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of lines that wait: more than a thousand lines.
const ROOM: usize = 256 * 1024;
/// How often an output that is not ready is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// Lines on their way. What is written here never blocks and never fails.
#[derive(Debug, Default)]
pub struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines that had no room since the last were taken.
    lost: u64,
    /// What was taken is not written yet.
    writing: bool,
}

impl Lines {
    /// Lines to `output`, on a thread of their own for as long as the process lives. `tell` logs how many were lost.
    pub fn start(output: impl Write + Send + 'static, tell: fn(u64)) -> io::Result<Arc<Self>> {
        let lines = Arc::new(Self::default());
        let taker = Arc::clone(&lines);
        thread::Builder::new().name("log".to_owned()).spawn(move || taker.write_to(output, tell))?;
        Ok(lines)
    }

    /// Waits until everything is written, for at most `limit`.
    pub fn flush(&self, limit: Duration) {
        let unwritten = |waiting: &mut Waiting| waiting.writing || !waiting.bytes.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), limit, unwritten));
    }

    fn write_to(&self, mut output: impl Write, tell: fn(u64)) -> ! {
        loop {
            let (bytes, lost) = self.take();
            if lost > 0 {
                tell(lost); // right behind the last line that had room
            }
            write_all(&mut output, &bytes);
        }
    }

    /// Waits for lines.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.lock();
        waiting.writing = false;
        self.changed.notify_all();
        let empty = |waiting: &mut Waiting| waiting.bytes.is_empty();
        waiting = self.changed.wait_while(waiting, empty).unwrap_or_else(PoisonError::into_inner);
        waiting.writing = true;
        (std::mem::take(&mut waiting.bytes), std::mem::take(&mut waiting.lost))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line is one write.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() <= ROOM {
            waiting.bytes.extend_from_slice(line);
            self.changed.notify_all();
        } else {
            waiting.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what can be written: nobody could be told of an error.
fn write_all(output: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(length @ 1..) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program that has the same terminal or pipe can make it so.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY),
            Ok(0) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// An output that takes a write when somebody reads, and fails when nobody ever will.
    struct Rendezvous(SyncSender<Vec<u8>>);

    impl Write for Rendezvous {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(tell: fn(u64)) -> (Arc<Lines>, Receiver<Vec<u8>>) {
        let (sender, written) = sync_channel(0);
        (Lines::start(Rendezvous(sender), tell).unwrap(), written)
    }

    #[test]
    fn what_has_no_room_is_lost_and_counted() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (lines, written) = start(|lost| LOST.store(lost, Ordering::SeqCst));
        let mut log = &*lines;
        log.write_all(b"first\n").unwrap();
        while !lines.lock().bytes.is_empty() {
            thread::yield_now(); // it is taken, and the output does not go on
        }
        let line = [b'x'; 1024];
        for _ in 0..(ROOM / line.len()) + 3 {
            log.write_all(&line).unwrap();
        }
        lines.flush(Duration::from_millis(1)); // does not wait for ever
        assert_eq!(written.recv().unwrap(), b"first\n");
        assert_eq!(written.recv().unwrap().len(), ROOM);
        assert_eq!(LOST.load(Ordering::SeqCst), 3);
        log.write_all(b"there is room again\n").unwrap();
        assert_eq!(written.recv().unwrap(), b"there is room again\n");
        lines.flush(Duration::from_secs(60));
        assert!(!lines.lock().writing);
    }

    #[test]
    fn without_a_reader_nothing_waits() {
        let (lines, written) = start(|_| {});
        drop(written);
        for _ in 0..3 {
            (&*lines).write_all(&vec![b'x'; ROOM]).unwrap();
            lines.flush(Duration::from_secs(60));
            assert!(lines.lock().bytes.is_empty());
        }
    }

    #[test]
    fn an_output_that_is_not_ready_is_tried_again() {
        struct Slow(usize, Vec<u8>);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                match self.0 % 3 {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    1 => Err(io::ErrorKind::Interrupted.into()),
                    _ => self.1.write(&bytes[..1]),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut slow = Slow(0, Vec::new());
        write_all(&mut slow, b"abc");
        assert_eq!(slow.1, b"abc");
    }
}
