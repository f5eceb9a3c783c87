//! Where a link leads.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::store::StoreError;
use crate::store::address::Node;
use crate::store::dial::{Dialer, Found};

/// Where a link leads.
#[derive(Clone, Debug)]
pub enum Place {
    /// To the one server that there is.
    Only(Arc<Dialer>),
    /// To a node of a cluster.
    Node(Arc<Dialer>, Node, Arc<Tag>),
}

/// A hash tag of the slots that a node of a cluster serves: what its probes write goes there.
#[derive(Debug)]
pub struct Tag(Mutex<String>);

impl Tag {
    /// This one at first.
    pub fn new(tag: &str) -> Self {
        Self(Mutex::new(tag.to_owned()))
    }

    /// Another one from now on.
    pub fn set(&self, tag: &str) {
        tag.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The one for now.
    pub(super) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Place {
    /// A client of the server, found within `limit`.
    pub(super) async fn find(&self, limit: Duration) -> Result<Found, StoreError> {
        match self {
            Self::Only(dialer) => dialer.find(limit).await,
            Self::Node(dialer, node, _) => {
                Ok(Found { client: dialer.client_of(node).await?, server: node.to_string(), named: None })
            }
        }
    }

    /// Whether it may be another server each time.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self, Self::Only(dialer) if dialer.is_asking())
    }

    /// Why the server that sentinels `named` is not to be used any longer, as soon as they name another; `limit` is how
    /// long they may take to answer.
    pub(super) async fn replaced(&self, named: Option<Node>, limit: Duration) -> StoreError {
        match (self, named) {
            (Self::Only(dialer), Some(named)) => dialer.replaced(&named, limit).await,
            _ => std::future::pending().await,
        }
    }
}

impl fmt::Display for Place {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(dialer) => dialer.address().fmt(f),
            Self::Node(_, node, _) => node.fmt(f),
        }
    }
}
