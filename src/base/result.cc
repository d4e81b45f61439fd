#include "deltawire/result.h"

namespace deltawire {

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kUnknownCodec: return "UnknownCodec";
    case ErrorCode::kUnsupportedDType: return "UnsupportedDType";
    case ErrorCode::kNotFinite: return "NotFinite";
    case ErrorCode::kRange: return "Range";
    case ErrorCode::kOutputTooSmall: return "OutputTooSmall";
    case ErrorCode::kTruncated: return "Truncated";
    case ErrorCode::kCorrupt: return "Corrupt";
    case ErrorCode::kUnsupportedVersion: return "UnsupportedVersion";
    case ErrorCode::kMismatch: return "Mismatch";
    case ErrorCode::kLimit: return "Limit";
    case ErrorCode::kTimeout: return "Timeout";
    case ErrorCode::kPeerLost: return "PeerLost";
    case ErrorCode::kAborted: return "Aborted";
    case ErrorCode::kUnauthorized: return "Unauthorized";
    case ErrorCode::kAddressInUse: return "AddressInUse";
    case ErrorCode::kSystem: return "System";
    case ErrorCode::kState: return "State";
    case ErrorCode::kIo: return "Io";
    case ErrorCode::kNoMemory: return "NoMemory";
    case ErrorCode::kExcluded: return "Excluded";
    case ErrorCode::kNoQuorum: return "NoQuorum";
  }
  return "Unknown";
}

std::string Error::text() const {
  return advice.empty() ? message : message + "; " + advice;
}

}  // namespace deltawire
