//! How to make a layer's tar again, byte by byte, from its unpacked files: everything of the tar
//! but the files' content, and where that content belongs. So an image can be exported under its
//! own identity although its blobs are not kept.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufReader, Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::Mode,
};

use super::Error;

/// The bytes between files are bounded; a layer with more can be run but not exported.
const MOST_LITERAL: u64 = 1 << 30;
const LITERAL: u8 = 0;
const CONTENT: u8 = 1;

/// Written while a layer is unpacked. Shared by the reader that sees every byte and the code that
/// knows which of them are a file's.
pub struct Tape(RefCell<Inner>);

struct Inner {
    writer: Option<zstd::stream::write::Encoder<'static, File>>,
    literal: Vec<u8>,
    literal_total: u64,
    /// Bytes of the file that is passing.
    content: Option<u64>,
}

impl Tape {
    pub fn create(path: &Path) -> Result<Tape, Error> {
        let file = File::create(path).map_err(Error::file(path))?;
        let writer = zstd::stream::write::Encoder::new(file, 3).map_err(Error::file(path))?;
        Ok(Tape(RefCell::new(Inner {
            writer: Some(writer),
            literal: Vec::new(),
            literal_total: 0,
            content: None,
        })))
    }

    fn pass(&self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        if let Some(count) = &mut inner.content {
            *count += bytes.len() as u64;
            return Ok(());
        }
        inner.literal_total += bytes.len() as u64;
        if inner.literal_total > MOST_LITERAL {
            inner.writer = None;
            inner.literal.clear();
        }
        if inner.writer.is_some() {
            inner.literal.extend_from_slice(bytes);
            if inner.literal.len() > 1 << 20 {
                inner.flush_literal()?;
            }
        }
        Ok(())
    }

    pub fn begin_content(&self) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.flush_literal()?;
        inner.content = Some(0);
        Ok(())
    }

    pub fn end_content(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        let count = inner.content.take().unwrap_or(0);
        let path = path.as_os_str().as_bytes();
        if let Some(writer) = &mut inner.writer {
            writer.write_all(&[CONTENT])?;
            writer.write_all(&count.to_le_bytes())?;
            writer.write_all(&(path.len() as u64).to_le_bytes())?;
            writer.write_all(path)?;
        }
        Ok(())
    }

    /// False if the recipe would have been too large and there is none.
    pub fn finish(self) -> io::Result<bool> {
        let mut inner = self.0.into_inner();
        inner.flush_literal()?;
        match inner.writer.take() {
            Some(writer) => writer.finish()?.sync_all().map(|()| true),
            None => Ok(false),
        }
    }
}

impl Inner {
    fn flush_literal(&mut self) -> io::Result<()> {
        if let Some(writer) = &mut self.writer
            && !self.literal.is_empty()
        {
            writer.write_all(&[LITERAL])?;
            writer.write_all(&(self.literal.len() as u64).to_le_bytes())?;
            writer.write_all(&self.literal)?;
        }
        self.literal.clear();
        Ok(())
    }
}

/// A reader whose bytes are taped.
pub struct Taped<'a, R> {
    pub inner: R,
    pub tape: &'a Tape,
}

impl<R: Read> Read for Taped<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.tape.pass(&buffer[..count])?;
        Ok(count)
    }
}

/// Writes the tar to `output`. The caller must check its digest.
pub fn bake(recipe: &Path, layer: &Path, output: &mut impl Write) -> Result<(), Error> {
    let file = File::open(recipe).map_err(Error::file(recipe))?;
    let mut reader =
        BufReader::new(zstd::stream::read::Decoder::new(file).map_err(Error::file(recipe))?);
    let root = File::open(layer).map_err(Error::file(layer))?;
    let mut kind = [0];
    loop {
        match reader.read(&mut kind) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(Error::file(recipe)(error)),
        }
        let length = number(&mut reader).map_err(Error::file(recipe))?;
        if kind[0] == LITERAL {
            copy_exactly(&mut reader, length, output).map_err(Error::file(recipe))?;
            continue;
        }
        let path_length = number(&mut reader).map_err(Error::file(recipe))?;
        let mut path = Vec::new();
        (&mut reader)
            .take(path_length.min(1 << 16))
            .read_to_end(&mut path)
            .map_err(Error::file(recipe))?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&path));
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .mode(Mode::empty())
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let mut content = openat2(root.as_fd(), &path, how)
            .map(File::from)
            .map_err(|errno| Error::file(layer.join(&path))(errno.into()))?;
        copy_exactly(&mut content, length, output).map_err(Error::file(layer.join(&path)))?;
    }
}

fn number(reader: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn copy_exactly(reader: &mut impl Read, length: u64, output: &mut impl Write) -> io::Result<()> {
    match io::copy(&mut reader.take(length), output)? {
        copied if copied == length => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
