//! Drivers for providers' protocols: neutral request in, neutral events out.
