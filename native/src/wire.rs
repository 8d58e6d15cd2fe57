//! Blocking requests to the brokers of a Kafka cluster: the leaders of a topic's partitions, and their records.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::batches;
use crate::connection::{Connection, Security};

/// Versions that brokers from Kafka 2.8 on know. Later versions of Fetch name topics by their ids only.
const FETCH_VERSION: i16 = 12;
const METADATA_VERSION: i16 = 12;
/// Bytes that are requested at once. A broker returns a larger batch as a whole.
const FETCH_BYTES: i32 = 2 << 20;
const READ_COMMITTED: i8 = 1;

/// The records that a broker returned, and the aborted transactions among them.
pub struct Fetched {
    /// First offset and producer id of aborted transactions.
    pub aborted: Vec<(i64, i64)>,
    /// Record batches, of which the last may be cut off.
    pub batches: Bytes,
}

/// A topic's partitions and their leaders.
pub struct Topic {
    bootstrap: Vec<String>,
    security: Security,
    name: TopicName,
    id: String,
    connections: HashMap<i32, Connection>,
    brokers: HashMap<i32, (String, u16)>,
    leaders: HashMap<i32, i32>,
}

impl Topic {
    /// Return a topic. Its id, as hexadecimal text, must be the given one: a recreated topic has the same offsets.
    pub fn open(bootstrap: Vec<String>, security: Security, name: &str, id: &str) -> Result<Self> {
        let mut topic = Self {
            bootstrap,
            security,
            name: TopicName(StrBytes::from_string(name.to_owned())),
            id: id.to_owned(),
            connections: HashMap::new(),
            brokers: HashMap::new(),
            leaders: HashMap::new(),
        };
        topic.refresh()?;
        Ok(topic)
    }

    fn refresh(&mut self) -> Result<()> {
        let mut error = anyhow!("no broker is named");
        for address in &self.bootstrap {
            match self.described_by(address) {
                Ok(response) => return self.update(&response),
                Err(cause) => error = cause.context(format!("broker {address}")),
            }
        }
        Err(error)
    }

    fn described_by(&self, address: &str) -> Result<MetadataResponse> {
        let (host, port) = address.trim().rsplit_once(':').ok_or_else(|| anyhow!("an address is no host:port"))?;
        let mut connection = Connection::open(host.trim_matches(['[', ']']), port.parse()?, &self.security)?;
        let named = MetadataRequestTopic::default().with_name(Some(self.name.clone()));
        let request = MetadataRequest::default().with_allow_auto_topic_creation(false).with_topics(Some(vec![named]));
        connection.send(ApiKey::Metadata, METADATA_VERSION, &request)?;
        connection.receive(METADATA_VERSION)
    }

    fn update(&mut self, response: &MetadataResponse) -> Result<()> {
        let topic = response.topics.first().ok_or_else(|| anyhow!("the cluster does not have the topic"))?;
        ensure!(topic.error_code == 0, "the cluster describes the topic by error {}", topic.error_code);
        let id: String = topic.topic_id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        ensure!(id == self.id, "the topic has another id: it was recreated");
        self.connections.clear();
        self.brokers = response.brokers.iter().map(|b| (b.node_id.0, (b.host.to_string(), b.port as u16))).collect();
        self.leaders = topic.partitions.iter().map(|part| (part.partition_index, part.leader_id.0)).collect();
        Ok(())
    }

    fn leader(&mut self, partition: i32) -> Result<&mut Connection> {
        let id = *self.leaders.get(&partition).ok_or_else(|| anyhow!("the topic has no partition {partition}"))?;
        if !self.connections.contains_key(&id) {
            let (host, port) = self.brokers.get(&id).ok_or_else(|| anyhow!("partition {partition} has no leader"))?;
            let connection = Connection::open(host, *port, &self.security);
            let connection = connection.with_context(|| format!("broker {host}:{port}"))?;
            self.connections.insert(id, connection);
        }
        Ok(self.connections.get_mut(&id).expect("it was inserted"))
    }

    fn request(&mut self, partition: i32, offset: i64) -> Result<()> {
        let of_partition = FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_fetch_offset(offset)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(FETCH_BYTES);
        let of_topic = FetchTopic::default().with_topic(self.name.clone()).with_partitions(vec![of_partition]);
        let request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_isolation_level(READ_COMMITTED)
            .with_session_epoch(-1)
            .with_topics(vec![of_topic]);
        self.leader(partition)?.send(ApiKey::Fetch, FETCH_VERSION, &request)
    }

    fn response(&mut self, partition: i32) -> Result<Fetched> {
        let mut response: FetchResponse = self.leader(partition)?.receive(FETCH_VERSION)?;
        ensure!(response.error_code == 0, "the broker answered a fetch by error {}", response.error_code);
        let mut partitions = response.responses.pop().map(|topic| topic.partitions).unwrap_or_default();
        let of_partition =
            partitions.pop().ok_or_else(|| anyhow!("the broker answered a fetch without a partition"))?;
        let (code, index) = (of_partition.error_code, of_partition.partition_index);
        ensure!(
            code == 0 && index == partition,
            "the broker answered a fetch of partition {partition} by error {code}"
        );
        let aborted = of_partition.aborted_transactions.unwrap_or_default();
        Ok(Fetched {
            aborted: aborted.into_iter().map(|one| (one.first_offset, one.producer_id.0)).collect(),
            batches: of_partition.records.unwrap_or_default(),
        })
    }

    /// Call `each` with the records of a partition from `start` (inclusive) to `end` (exclusive) at least, in order.
    ///
    /// The next request is sent before a response is handled. After the first error of a broker, such as that another
    /// one leads the partition by now, the leaders are looked up again.
    pub fn fetch(
        &mut self,
        partition: i32,
        start: i64,
        end: i64,
        mut each: impl FnMut(Fetched) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut is_requested, mut is_refreshed) = (start, false, false);
        while at < end {
            let answered = if is_requested { Ok(()) } else { self.request(partition, at) };
            let fetched = match answered.and_then(|()| self.response(partition)) {
                Ok(fetched) => fetched,
                Err(error) if is_refreshed => return Err(error),
                Err(error) => {
                    self.refresh().context(error)?;
                    (is_requested, is_refreshed) = (false, true);
                    continue;
                }
            };
            let next = batches::next_offset(&fetched.batches)?.unwrap_or(at);
            ensure!(next > at, "the broker has no records from offset {at} on, although {end} is the end");
            at = next;
            is_requested = at < end;
            if is_requested && self.request(partition, at).is_err() {
                // The response to a request that was not sent is an error, which the next round handles.
                is_requested = false;
            }
            each(fetched)?;
        }
        Ok(())
    }
}
