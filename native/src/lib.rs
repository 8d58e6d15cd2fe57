//! Reads ranges of a Kafka topic, decodes their Avro records and writes the rows as Parquet, in one pass.
//!
//! Tasks of Spark call `python::decide` (`spark/native/task.py`). The crate knows no storage and no table: the caller
//! opens the files and commits them.

pub mod avro;
pub mod batches;
pub mod columns;
pub mod connection;
pub mod files;
pub mod partitions;
#[cfg(feature = "python")]
mod python;
pub mod range;
pub mod sorting;
pub mod wire;
