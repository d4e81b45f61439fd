#include "codecs/fixed_codec.h"

#include <cassert>

namespace deltawire {

Status FixedCodec::check_padding(const PartView& in, std::uint64_t count) const {
  assert(in.payload.size() == bytes_of(count));
  const std::uint64_t used = count % 8 * (fields_[0].bits + fields_[1].bits) % 8;  // of the last byte
  if (used == 0 || std::to_integer<unsigned>(in.payload.back()) >> used == 0) return {};
  return corrupt(std::string(info().name) + ": bits follow the last element");
}

Result<EncodedPart> FixedCodec::do_encode(const PartSource& part, const PartBuffer& out,
                                          const Exec& exec) const {
  assert(bytes_of(part.count) <= out.payload.size());
  ASSIGN_OR_RETURN(const auto scalars, encode_codes(part, exec, out.payload.data()));
  EncodedPart encoded = write_fixed_ends(bytes_of(part.count), chunk_bytes(), 1, out.chunk_ends);
  encoded.scalar = scalars.first;
  encoded.scalar2 = scalars.second;
  return encoded;
}

Status FixedCodec::do_describe(const PartView& in, std::uint64_t count,
                               std::vector<Section>& sections) const {
  RETURN_IF_ERROR(check_fixed_ends(in, bytes_of(count), chunk_bytes(), 1));
  RETURN_IF_ERROR(check_codes(in, count));
  std::uint64_t padding = in.payload.size() * 8;
  for (const Field& field : fields_) {
    add_section(sections, field.name, count * field.bits);
    padding -= count * field.bits;
  }
  assert(padding < 8);
  add_section(sections, "padding", padding);
  return {};
}

}  // namespace deltawire
