//! Orders: bans and allows, which operators put, list and lift.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::order_path::Place;
use super::rules::{JSON, ORDER_BYTES_MAX, judge_query, number};
use super::{Answered, Request, Routes, essence};
use crate::access::credentials::Role;
use crate::connections::Peer;
use crate::moment;
use crate::orders::ask::{self, REASON_BYTES_MAX};
use crate::orders::network::Network;
use crate::orders::order::{Kind, Standing, Which, name_of};
use crate::problem::{Problem, json as response};
use crate::strict_json;

impl Routes {
    pub(super) async fn orders(&self, request: Request, peer: &Peer, place: Place) -> Answered {
        match (place, request.method()) {
            (Place::All, &Method::GET | &Method::HEAD) => self.list_orders(&request, None).await,
            (Place::Of(kind), &Method::GET | &Method::HEAD) => self.list_orders(&request, Some(kind)).await,
            (Place::Of(kind), &Method::PUT) => self.put_order(request, peer, kind).await,
            (Place::One(kind, which), &Method::DELETE) => self.drop_order(&request, peer, kind, &which).await,
            (Place::All, _) => Err(Problem::method_not_allowed("GET, HEAD")),
            (Place::Of(_), _) => Err(Problem::method_not_allowed("GET, HEAD, PUT")),
            (Place::One(..), _) => Err(Problem::method_not_allowed("DELETE")),
        }
    }

    async fn list_orders(&self, request: &Request, kind: Option<Kind>) -> Answered {
        self.operator(request.headers(), Role::Read)?;
        judge_query(request)?;
        let all = self.exchange.rules.orders().await?;
        let is_asked = |standing: &&Standing| kind.is_none_or(|kind| standing.order.said.kind == kind);
        let orders: Vec<Value> = all.iter().filter(is_asked).map(Standing::json).collect();
        Ok(response(StatusCode::OK, JSON, &json!({"orders": orders})))
    }

    async fn put_order(&self, request: Request, peer: &Peer, kind: Kind) -> Answered {
        let mut change = self.change(request.headers(), peer, kind.as_str())?;
        judge_query(&request)?;
        if !essence(request.headers()).eq_ignore_ascii_case(JSON.as_bytes()) {
            return Err(Problem::media_type(JSON));
        }
        let body = self.read(request.into_body(), ORDER_BYTES_MAX).await?;
        let value =
            strict_json::read(&body).map_err(|error| Problem::malformed(format!("no JSON: {error}")))?;
        let mut asked = ask::read(&value, moment::now_ms()).map_err(|errors| {
            let detail = format!("the order has {} errors; nothing was changed", errors.len());
            Problem::invalid(detail, &errors)
        })?;
        // Either place will do.
        if asked.reason.is_empty() {
            asked.reason.clone_from(&change.comment);
        }
        change.comment.clone_from(&asked.reason);
        let standing = self.exchange.rules.put_order(kind, &asked, &change).await?;
        Ok(response(StatusCode::OK, JSON, &standing.json()))
    }

    async fn drop_order(&self, request: &Request, peer: &Peer, kind: Kind, which: &str) -> Answered {
        let change = self.change(request.headers(), peer, "lift")?;
        judge_query(request)?;
        let which = which_of(which)?;
        let standing = self.exchange.rules.drop_order(kind, &which, &change).await?;
        Ok(response(StatusCode::OK, JSON, &standing.json()))
    }
}

/// The order that a path names, by its number or by its address.
fn which_of(text: &str) -> Result<Which, Problem> {
    if let Some(id) = number(text).filter(|_| !text.is_empty()) {
        return Ok(Which::Id(id));
    }
    // A network's slash, and the colons of IPv6, may be percent-encoded.
    let text = text.replace("%2F", "/").replace("%2f", "/").replace("%3A", ":").replace("%3a", ":");
    let address = text.parse::<Network>().map_err(|error| {
        Problem::malformed(format!("expected the order's id, or its address: {error}, found {text:?}"))
    })?;
    Ok(Which::Named(name_of(&address)))
}

const _: () = assert!(REASON_BYTES_MAX < ORDER_BYTES_MAX);
