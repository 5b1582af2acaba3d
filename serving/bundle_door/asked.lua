-- Which model a ModelInfer asks, for the access log (envoy.py): Envoy itself reads no messages. Name
-- and version are the message's first fields, and encoders write fields in their order; of one that
-- is compressed, or written otherwise, nothing is known.

local PATH = "/inference.GRPCInferenceService/ModelInfer"
local NAME, VERSION = 0x0a, 0x12
local HEAD = 5 -- gRPC's own: whether it is compressed, and its length
local LONGEST = 127 -- of what is read, which has its length in one byte

local function text_at(bytes, place, field)
  local length = bytes:byte(place + 1)
  if bytes:byte(place) ~= field or length == nil or length > LONGEST then
    return "", place
  end
  local text = bytes:sub(place + 2, place + 1 + length)
  return text:match("^%g*$") or "", place + 2 + length
end

function envoy_on_request(handle)
  if handle:headers():get(":path") ~= PATH then
    return
  end
  for chunk in handle:bodyChunks() do
    local size = math.min(chunk:length(), HEAD + 2 * (2 + LONGEST))
    local bytes = chunk:getBytes(0, size)
    if bytes:byte(1) == 0 then
      local name, rest = text_at(bytes, HEAD + 1, NAME)
      local version = text_at(bytes, rest, VERSION)
      local found = handle:streamInfo():dynamicMetadata()
      found:set("envoy.filters.http.lua", "model", name)
      found:set("envoy.filters.http.lua", "version", version)
    end
    return -- the buffer before this filter has made it one chunk
  end
end
