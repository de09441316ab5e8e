//! `/logs/`: the files below the machine's `/var/log`, listed and sent as they are.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{fs::File, io::AsyncReadExt, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::{Body, text};

const ROOT: &str = "/var/log";
const BLOCK: usize = 64 * 1024;
const CHUNKS: usize = 4;

/// `slash`: the path ends with one, as that of a directory must.
pub async fn answer(parts: &[&str], slash: bool) -> Response<Body> {
    let Some(path) = place(Path::new(ROOT), parts) else {
        return text(StatusCode::BAD_REQUEST, "invalid URL path");
    };
    match send(&path, slash, parts).await {
        Ok(response) => response,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            text(StatusCode::NOT_FOUND, "404 page not found")
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            text(StatusCode::FORBIDDEN, "403 Forbidden")
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The file that a request's path names, if it is below `root`.
fn place(root: &Path, parts: &[&str]) -> Option<PathBuf> {
    let mut path = root.to_path_buf();
    for part in parts {
        let part = super::query::decode(part);
        let mut components = Path::new(&part).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(name)), None) => path.push(name),
            _ => return None,
        }
    }
    Some(path)
}

async fn send(path: &Path, slash: bool, parts: &[&str]) -> io::Result<Response<Body>> {
    let metadata = tokio::fs::metadata(path).await?;
    if metadata.is_dir() && !slash {
        let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
        let location = format!("{}/", parts.last().unwrap_or(&"logs"));
        if let Ok(location) = HeaderValue::try_from(location) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(response);
    }
    if metadata.is_dir() {
        let mut names = Vec::new();
        let mut entries = tokio::fs::read_dir(path).await?;
        while let Some(entry) = entries.next_entry().await? {
            let slash = if entry.file_type().await?.is_dir() {
                "/"
            } else {
                ""
            };
            names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
        }
        let mut response = text(StatusCode::OK, listing(names));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
        return Ok(response);
    }
    // A pipe or a device would never end.
    if !metadata.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = File::open(path).await?;
    let (sender, receiver) = mpsc::channel(CHUNKS);
    tokio::spawn(async move {
        let mut block = vec![0; BLOCK];
        while let Ok(count) = file.read(&mut block).await {
            let chunk = Bytes::copy_from_slice(&block[..count]);
            if count == 0 || sender.send(chunk).await.is_err() {
                return;
            }
        }
    });
    let frames = ReceiverStream::new(receiver).map(|chunk| Ok(Frame::data(chunk)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

fn listing(mut names: Vec<String>) -> String {
    names.sort();
    let escaped = |name: &str| {
        name.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&#34;")
    };
    let lines: String = names
        .iter()
        .map(|name| format!("<a href=\"{0}\">{0}</a>\n", escaped(name)))
        .collect();
    format!(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{lines}</pre>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_logs() {
        let root = Path::new("/r");
        assert_eq!(place(root, &["a", "b.log"]), Some("/r/a/b.log".into()));
        assert_eq!(place(root, &[]), Some("/r".into()));
        for bad in [
            ["..", "x"],
            ["%2e%2e", "x"],
            ["a%2fb", "x"],
            ["%2fetc", "x"],
        ] {
            assert_eq!(place(root, &bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn directories_are_listed_and_files_sent() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("d")).expect("made");
        std::fs::write(directory.path().join("a<b"), "text").expect("written");
        let body = |response: Response<Body>| async {
            let bytes = response.into_body().collect().await.expect("a body");
            String::from_utf8(bytes.to_bytes().to_vec()).expect("text")
        };
        let listed = send(directory.path(), true, &[]).await.expect("listed");
        let listed = body(listed).await;
        assert!(
            listed.contains("<a href=\"a&lt;b\">a&lt;b</a>\n<a href=\"d/\">d/</a>\n"),
            "{listed}"
        );
        let file = directory.path().join("a<b");
        assert_eq!(
            body(send(&file, false, &["x"]).await.expect("sent")).await,
            "text"
        );
        let moved = send(directory.path(), false, &["d"]).await.expect("moved");
        assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
    }
}
