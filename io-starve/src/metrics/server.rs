//! Serves metrics over HTTP, on a thread of its own: no scraper can hold up a tick.
//!
//! In: families, now and then. Out: pages. A page is written once for each notation however many ask for it. Bounded are the
//! connections at a time, the length of a request and the time of each connection, whichever side is slow. hyper does the protocol.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    Family,
    text::{Notation, render},
};

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;
/// How long a connection may last, from its first byte to its last: a page is some 100 KiB.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST: usize = 16 << 10;
/// How long accepting rests when there is no descriptor left.
const REST: Duration = Duration::from_millis(100);

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot serve metrics at {address}: {source}; {}", hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error(
        "cannot start a thread to serve metrics with: {0}; the limit of processes may be reached"
    )]
    Thread(io::Error),
}

fn hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::AddrInUse => "another program listens there; choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need root",
        _ => "check the address",
    }
}

/// What is served, written when it is first asked for.
#[derive(Debug, Default)]
struct Page {
    families: Vec<Family>,
    prometheus: OnceLock<Bytes>,
    open_metrics: OnceLock<Bytes>,
}

impl Page {
    fn text(&self, notation: Notation) -> Bytes {
        let cell = match notation {
            Notation::Prometheus => &self.prometheus,
            Notation::OpenMetrics => &self.open_metrics,
        };
        cell.get_or_init(|| render(&self.families, notation).into())
            .clone()
    }
}

/// An address that is listened on.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// Puts figures on the page.
#[derive(Debug, Clone)]
pub struct Publisher {
    page: Arc<Mutex<Arc<Page>>>,
}

impl Publisher {
    /// From now on these are served.
    pub fn publish(&self, families: Vec<Family>) {
        let page = Arc::new(Page {
            families,
            ..Page::default()
        });
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }

    fn page(&self) -> Arc<Page> {
        self.page
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Server {
    /// Listens. Nobody is answered yet.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn bind(address: SocketAddr) -> Result<Server, ServerError> {
        let listen = || -> io::Result<Server> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Server { listener, address })
        };
        listen().map_err(|source| ServerError::Listen { address, source })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from now on, until the process ends.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self) -> Result<Publisher, ServerError> {
        let publisher = Publisher {
            page: Arc::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let pages = publisher.clone();
        std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                // Fails only when the runtime is shutting down.
                let _ = runtime.block_on(accept(self.listener, pages));
            })
            .map_err(ServerError::Thread)?;
        Ok(publisher)
    }
}

async fn accept(listener: TcpListener, pages: Publisher) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return Ok(());
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let page = pages.page();
                async move { Ok::<_, Infallible>(answer(&request, &page)) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(REQUEST)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // Whoever is too slow, or talks nonsense, is no concern of ours.
            let _ = timeout(PATIENCE, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, page: &Page) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        "/metrics" => {}
        "/" => return plain(StatusCode::OK, "io-starve: see /metrics\n"),
        _ => return plain(StatusCode::NOT_FOUND, "see /metrics\n"),
    }
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|a| a.to_str().ok()).unwrap_or_default();
    let notation = Notation::asked_for(accept);
    let mut response = Response::new(Full::new(page.text(notation)));
    let kind = header::HeaderValue::from_static(notation.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
