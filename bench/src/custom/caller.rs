//! One client with one connection, for requests that follow each other.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::time::Instant;

use crate::load::connection::{Connection, connector};
use crate::load::drive::Target;

pub struct Caller {
    target: Target,
    connection: Connection,
}

impl Caller {
    pub async fn open(target: &Target) -> Result<Caller> {
        Ok(Caller {
            target: target.clone(),
            connection: Connection::open(target.address, &connector()?).await?,
        })
    }

    pub async fn get_as(&mut self, path: &str, accept: &str) -> Result<Vec<u8>> {
        let target = &self.target;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: {accept}\r\n\r\n",
            target.address, target.token
        );
        let (code, body) = self.connection.fetch(request.as_bytes()).await?;
        ensure!(code == 200, "{path} answered {code}");
        Ok(body)
    }

    pub async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.post_as(path, "application/json", body).await
    }

    pub async fn post_as(&mut self, path: &str, form: &str, body: &str) -> Result<Vec<u8>> {
        let (code, answer) = self.send("POST", path, form, body).await?;
        if code != 201 {
            let answer = String::from_utf8_lossy(&answer);
            let answer: String = answer.chars().take(2000).collect();
            bail!("{path} answered {code}: {answer}");
        }
        Ok(answer)
    }

    /// The code of the answer alone.
    pub async fn code(&mut self, method: &str, path: &str, body: &str) -> Result<u16> {
        let (code, _) = self.send(method, path, "application/json", body).await?;
        Ok(code)
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        form: &str,
        body: &str,
    ) -> Result<(u16, Vec<u8>)> {
        let target = &self.target;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: application/json\r\n\
             content-type: {form}\r\ncontent-length: {}\r\n\r\n{body}",
            target.address,
            target.token,
            body.len()
        );
        self.connection.fetch(request.as_bytes()).await
    }

    /// Asks until it is answered, and returns how many milliseconds that took.
    pub async fn until_served(&mut self, path: &str, patience: Duration) -> Result<f64> {
        let request = self.target.request("GET", path, "", "");
        let began = Instant::now();
        loop {
            let answer = self.connection.exchange(&request).await?;
            let elapsed = began.elapsed();
            if answer.code == 200 {
                return Ok(elapsed.as_secs_f64() * 1e3);
            }
            ensure!(elapsed < patience, "{path} still answers {}", answer.code);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
