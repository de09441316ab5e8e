//! Opens an image archive as a plain tar that can be read at any place. Compressed archives and
//! streams are first written out to a file without a name, within the store's bounds.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use super::{Error, layer, store::ImageStore, unpack::Compression};

/// How many bytes are written between two looks at the file system's free space.
const STEP: usize = 1 << 20;
const TAR_BLOCK: usize = 512;

/// The archive in a file.
pub fn open(store: &ImageStore, path: &Path) -> Result<File, Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    if metadata.is_dir() {
        return Err(Error::NotAnArchive);
    }
    let mut start = [0; 4];
    let length = match metadata.is_file() {
        true => file.read_at(&mut start, 0).map_err(Error::file(path))?,
        false => 0,
    };
    match Compression::of(&start[..length]) {
        Compression::None if metadata.is_file() => checked(file),
        _ => stream(store, file),
    }
}

/// The archive that a stream brings.
pub fn stream(store: &ImageStore, reader: impl Read) -> Result<File, Error> {
    let mut reader = BufReader::new(reader);
    let broken = |error: io::Error| Error::Archive(printable(&error.to_string()));
    let start = reader.fill_buf().map_err(broken)?;
    match Compression::of(start) {
        Compression::None => checked(spool(store, reader)?),
        Compression::Gzip => checked(spool(store, flate2::bufread::MultiGzDecoder::new(reader))?),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(broken)?;
            decoder.window_log_max(27).map_err(broken)?;
            checked(spool(store, decoder)?)
        }
    }
}

fn spool(store: &ImageStore, mut reader: impl Read) -> Result<File, Error> {
    let (path, limits) = (store.ingest_directory(), store.limits());
    // A file without a name, which is removed when it is closed, also after a crash.
    let mut file = tempfile::tempfile_in(&path).map_err(Error::file(&path))?;
    let (mut buffer, mut left) = (vec![0; STEP], limits.bytes);
    let broken = |error: io::Error| Error::Archive(printable(&error.to_string()));
    loop {
        let length = reader.read(&mut buffer).map_err(broken)?;
        if length == 0 {
            return Ok(file);
        }
        left = left.checked_sub(length as u64).ok_or_else(|| {
            Error::Archive("it decompresses to more bytes than are allowed".into())
        })?;
        layer::enough_space(&file, limits).map_err(Error::file(&path))?;
        file.write_all(&buffer[..length])
            .map_err(Error::file(&path))?;
    }
}

/// Refuses what is no tar before it is read as one: its bytes would come back in the error.
fn checked(file: File) -> Result<File, Error> {
    let mut block = [0; TAR_BLOCK];
    match file.read_exact_at(&mut block, 0) {
        Ok(()) if is_header(&block) => Ok(file),
        _ => Err(Error::NotAnArchive),
    }
}

/// Whether the block carries its own checksum, in which the checksum counts as spaces.
fn is_header(block: &[u8; TAR_BLOCK]) -> bool {
    let mut header = tar::Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let actual = sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..]);
    header.cksum().is_ok_and(|stated| stated == actual)
}

/// Makes an error message printable, since it may contain bytes of the file.
pub fn printable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(200)
        .map(
            |c| match c.is_control() || c == char::REPLACEMENT_CHARACTER {
                true => '?',
                false => c,
            },
        )
        .collect();
    if text.chars().nth(200).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Limits;
    use std::fs;

    /// What `docker save` writes for an image of one layer with one file.
    fn docker_archive() -> Vec<u8> {
        let tar = |files: &[(&str, &[u8])]| {
            let mut builder = tar::Builder::new(Vec::new());
            for (name, content) in files {
                let mut header = tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                header.set_mode(0o644);
                header.set_uid(0);
                header.set_gid(0);
                header.set_mtime(0);
                builder
                    .append_data(&mut header, name, *content)
                    .expect("appended");
            }
            builder.into_inner().expect("a tar")
        };
        let layer = tar(&[("hello", b"hello")]);
        let diff_id = crate::images::content::sha256(&layer);
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#
        );
        let manifest =
            r#"[{"Config":"config.json","RepoTags":["spooled:1"],"Layers":["layer.tar"]}]"#;
        tar(&[
            ("config.json", config.as_bytes()),
            ("layer.tar", &layer),
            ("manifest.json", manifest.as_bytes()),
        ])
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("finished")
    }

    fn zstandard(bytes: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(bytes, 1).expect("encoded")
    }

    fn import(bytes: &[u8], limits: Limits) -> (Result<Vec<String>, Error>, ImageStore) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = ImageStore::open(directory.path()).expect("a store");
        let store = store.with_limits(limits);
        let file = directory.path().join("archive");
        fs::write(&file, bytes).expect("written");
        let from_file = store.import(&file, None);
        let from_stream = store.import_stream(bytes, None);
        assert_eq!(
            from_file.as_ref().map_err(ToString::to_string).err(),
            from_stream.map_err(|error| error.to_string()).err()
        );
        let left = fs::read_dir(directory.path().join("images/ingest")).expect("ingest");
        assert_eq!(left.count(), 0, "nothing unfinished is left");
        (from_file, store)
    }

    #[test]
    fn archives_are_imported_plain_and_compressed_from_files_and_streams() {
        let archive = docker_archive();
        for bytes in [archive.clone(), gzip(&archive), zstandard(&archive)] {
            let (names, _) = import(&bytes, Limits::default());
            assert_eq!(names.expect("names"), ["docker.io/library/spooled:1"]);
        }
    }

    #[test]
    fn a_file_that_is_no_archive_is_refused_without_its_bytes_in_the_message() {
        let noise: Vec<u8> = (0..5000u32)
            .map(|number| ((number * 7919) >> 3) as u8)
            .collect();
        for bytes in [
            Vec::new(),
            b"hello".to_vec(),
            noise.clone(),
            gzip(&noise),
            zstandard(&noise),
            gzip(b""),
        ] {
            let message = import(&bytes, Limits::default()).0.unwrap_err().to_string();
            assert_eq!(
                message,
                "this is not an image archive: expected a tar file in OCI layout or of docker save, \
                 plain or compressed with gzip or zstd"
            );
        }
        let mut cut = gzip(&docker_archive());
        cut.truncate(cut.len() / 2);
        let message = import(&cut, Limits::default()).0.unwrap_err().to_string();
        assert!(message.chars().all(|c| !c.is_control()), "{message}");
    }

    #[test]
    fn an_archive_that_decompresses_to_too_much_is_refused() {
        let limits = Limits {
            bytes: 1 << 20,
            ..Limits::default()
        };
        let zeros = vec![0; 4 << 20];
        for bomb in [gzip(&zeros), zstandard(&zeros)] {
            let message = import(&bomb, limits).0.unwrap_err().to_string();
            assert!(message.contains("more bytes than are allowed"), "{message}");
        }
    }
}
