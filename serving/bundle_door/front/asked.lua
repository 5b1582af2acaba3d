-- What a ModelInfer asks: bounded before Triton reads it, by the bounds of messages.py, which go before
-- this; and its model, for the access log. Only lengths and names are read, a window at a time.

local PATH = "/inference.GRPCInferenceService/ModelInfer"
local NOTED = { [1] = "model", [2] = "version" }
local INPUT, SHAPE = 5, 3
local HEAD = 5 -- gRPC's own: whether it is compressed, and its length
local WINDOW = 1024

local function refuse(why)
  error(why, 0)
end

local function malformed()
  refuse("the message is malformed")
end

-- The byte at a place, from 0 on, of the body.
local function reader(body)
  local size, from, window = body:length(), 0, ""
  return size, function(place)
    if place >= size then
      malformed()
    end
    if place < from or place >= from + #window then
      from, window = place, body:getBytes(place, math.min(WINDOW, size - place))
    end
    return window:byte(place - from + 1)
  end
end

-- A number of seven bits a byte, and the place behind it.
local function varint(at, place)
  local value, unit = 0, 1
  for read = place, place + 9 do
    local byte = at(read)
    if byte < 128 then
      return value + byte * unit, read + 1
    end
    value, unit = value + (byte - 128) * unit, unit * 128
  end
  malformed()
end

-- The fields from one place to another; returns how many more there may be.
local function check(at, place, stop, known, left, found)
  local seen = {}
  while place < stop do
    local tag, length, value
    tag, place = varint(at, place)
    local number, kind = math.floor(tag / 8), tag % 8
    if kind == 2 then
      length, place = varint(at, place)
    elseif kind == 0 then
      length = 0
      value, place = varint(at, place)
    elseif kind == 1 then
      length = 8
    elseif kind == 5 then
      length = 4
    else
      malformed()
    end
    if number == 0 or number > MOST_NUMBER or place + length > stop then
      malformed()
    end
    if left == 0 then
      refuse("more than " .. MOST_VALUES .. " values; send them as raw_input_contents")
    end
    left = left - 1
    local bound = kind == 2 and known[number]
    if bound then
      seen[number] = (seen[number] or 0) + 1
      if bound.most and seen[number] > bound.most then
        refuse("more than " .. bound.most .. " " .. bound.what .. "; send fewer")
      end
      if bound.longest and length > bound.longest then
        refuse(bound.what .. " of " .. length .. " bytes; send " .. bound.longest .. " at most")
      end
      if bound.inside then
        left = check(at, place, place + length, bound.inside, left)
      end
    end
    -- Of another kind, no field that is looked for: to Triton it is one that it does not know.
    if found and (kind == 2 or kind == 0) then
      found(number, place, length, value)
    end
    place = place + length
  end
  return left
end

-- Of an input, which was checked: how many, if it is of a batch.
local function rows_of(at, place, stop)
  local rows
  check(at, place, stop, {}, MOST_VALUES, function(number, from, length, value)
    if number == SHAPE and not rows then
      rows = value or (length > 0 and varint(at, from))
    end
  end)
  return rows or 1
end

local function check_body(body, note)
  local size, at = reader(body)
  local length = at(1) * 16777216 + at(2) * 65536 + at(3) * 256 + at(4)
  if at(0) ~= 0 or HEAD + length ~= size then
    malformed()
  end
  local rows
  check(at, HEAD, size, MESSAGE, MOST_VALUES, function(number, place, length, value)
    if number == INPUT and not value and not rows then
      rows = rows_of(at, place, place + length)
      note:set("envoy.filters.http.lua", "rows", rows)
    end
    if NOTED[number] and not value then
      local text = length > 0 and body:getBytes(place, length) or ""
      note:set("envoy.filters.http.lua", NOTED[number], text:match("^%g*$") or "")
    end
  end)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  -- What is compressed is refused by its route.
  if headers:get(":path") ~= PATH or (headers:get("grpc-encoding") or "identity") ~= "identity" then
    return
  end
  local body = handle:body(true) -- what was got before it is gone
  local is_well, fault = pcall(check_body, body, handle:streamInfo():dynamicMetadata())
  if not is_well then
    handle:respond({ [":status"] = "400" }, fault)
  end
end

-- Triton's gRPC says INTERNAL of what it cannot read.
function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get("grpc-status") == "13" and headers:get("grpc-message") == "Unable to parse request" then
    headers:replace("grpc-status", "3")
  end
end
