//! The client against a scripted server.

mod events;
mod reflector;
mod script;
