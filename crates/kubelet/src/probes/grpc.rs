//! The gRPC health check (`grpc.health.v1.Health/Check`), with its two messages written out.

use std::time::Duration;

use tonic::{client::Grpc, transport::Endpoint};

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;

/// A failed probe. The message is the one of the event.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GrpcFailure(String);

pub async fn check(address: &str, service: String, timeout: Duration) -> Result<(), GrpcFailure> {
    ask(address, service, timeout).await.map_err(GrpcFailure)
}

async fn ask(address: &str, service: String, timeout: Duration) -> Result<(), String> {
    let work = async {
        let endpoint =
            Endpoint::try_from(format!("http://{address}")).map_err(|error| error.to_string())?;
        let channel = endpoint.connect().await.map_err(|error| {
            format!("error: failed to connect service at \"{address}\": {error}")
        })?;
        let mut grpc = Grpc::new(channel);
        grpc.ready()
            .await
            .map_err(|error| format!("error: health rpc probe failed: {error}"))?;
        let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let request = tonic::Request::new(HealthCheckRequest { service });
        let response = grpc.unary(request, path, codec).await.map_err(|status| {
            if status.code() == tonic::Code::Unimplemented {
                format!(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                    status.message()
                )
            } else {
                format!("error: health rpc probe failed: {}", status.message())
            }
        })?;
        match response.into_inner().status {
            SERVING => Ok(()),
            other => {
                let name = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]
                    .get(other as usize)
                    .unwrap_or(&"UNKNOWN");
                Err(format!("service unhealthy (responded with \"{name}\")"))
            }
        }
    };
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(format!(
            "timeout: failed to connect service \"{address}\" within {}s: context deadline exceeded",
            timeout.as_secs()
        )),
    }
}
