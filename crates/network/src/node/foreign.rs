//! Our accept in forward chains of others that drop what they do not know (Docker sets such a
//! policy). Each rule carries a comment with the cluster id and is removed by it.

use crate::names;
use crate::netlink::Connection;
use crate::nft::{
    self, Batch, Comparison, Error, Expression, Family, ListedChain, MetaKey, Register, Rule,
    RuleVerdict, Transaction,
};
use crate::subnet::Subnet;

/// Puts accepts for the pods' range at the head of every foreign IPv4 forward chain that drops by
/// default and does not have them yet.
pub fn accept_pods(
    connection: &mut Connection,
    cluster_id: &str,
    pods: Subnet,
) -> Result<(), Error> {
    let comment = names::foreign_rule_comment(cluster_id);
    let rules = nft::rules(connection)?;
    let mut transaction = Transaction::default();
    for chain in nft::chains(connection)?.into_iter().filter(needs_accept) {
        let present = rules.iter().any(|rule| {
            rule.family == chain.family
                && rule.table == chain.table
                && rule.chain == chain.name
                && rule.has_comment(&comment)
        });
        if present {
            continue;
        }
        let mut batch = Batch::new(chain.family, &chain.table);
        for outgoing in [false, true] {
            batch.insert_rule(&accept(&chain, outgoing, pods).comment(&comment));
        }
        transaction.push(batch);
    }
    transaction.commit(connection)
}

/// Removes every rule with the cluster's comment from tables of others.
pub fn remove(connection: &mut Connection, cluster_id: &str) -> Result<(), Error> {
    let comment = names::foreign_rule_comment(cluster_id);
    let mut transaction = Transaction::default();
    for rule in nft::rules(connection)? {
        if rule.has_comment(&comment) {
            let mut batch = Batch::new(rule.family, &rule.table);
            batch.delete_rule(&rule.chain, rule.handle);
            transaction.push(batch);
        }
    }
    transaction.commit(connection)
}

fn needs_accept(chain: &ListedChain) -> bool {
    chain.drops_forwarded()
        && matches!(chain.family, Family::Ipv4 | Family::Inet)
        && !chain.table.starts_with("coracle-")
}

fn accept(chain: &ListedChain, outgoing: bool, pods: Subnet) -> Rule {
    let register = Register(0);
    let mut expressions = Vec::new();
    if chain.family == Family::Inet {
        expressions.push(Expression::Meta {
            key: MetaKey::NetworkProtocol,
            to: register,
        });
        expressions.push(Expression::equal(register, [libc::NFPROTO_IPV4 as u8]));
    }
    expressions.push(if outgoing {
        Expression::source_address(register)
    } else {
        Expression::destination_address(register)
    });
    expressions.extend(Expression::within(register, pods, Comparison::Equal));
    expressions.push(Expression::Decide(RuleVerdict::Accept));
    Rule::new(&chain.name, expressions)
}
