package omidpy.driver;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The arguments of a command.  Bytes travel as hexadecimal digits. */
final class Request {
  private static final HexFormat HEX = HexFormat.of();

  private final JsonObject json;

  Request(JsonObject json) {
    this.json = json;
  }

  static String hex(byte[] bytes) {
    return HEX.formatHex(bytes);
  }

  static String hex(byte[] bytes, int offset, int length) {
    return HEX.formatHex(bytes, offset, offset + length);
  }

  static byte[] unhex(String digits) {
    return HEX.parseHex(digits);
  }

  boolean has(String name) {
    return json.has(name) && !json.get(name).isJsonNull();
  }

  String text(String name) {
    if (!has(name)) {
      throw new IllegalArgumentException("the request lacks " + name + ": " + json);
    }
    return json.get(name).getAsString();
  }

  String text(String name, String otherwise) {
    return has(name) ? text(name) : otherwise;
  }

  long number(String name) {
    if (!has(name)) {
      throw new IllegalArgumentException("the request lacks " + name + ": " + json);
    }
    return json.get(name).getAsLong();
  }

  int number(String name, int otherwise) {
    return has(name) ? json.get(name).getAsInt() : otherwise;
  }

  boolean flag(String name) {
    return has(name) && json.get(name).getAsBoolean();
  }

  byte[] bytes(String name) {
    return unhex(text(name));
  }

  /** An absent list is an empty one. */
  List<JsonElement> list(String name) {
    List<JsonElement> items = new ArrayList<>();
    if (has(name)) {
      json.getAsJsonArray(name).forEach(items::add);
    }
    return items;
  }

  /** Lists of byte strings: the columns, or the cells, of a request. */
  List<byte[][]> tuples(String name) {
    List<byte[][]> tuples = new ArrayList<>();
    for (JsonElement item : list(name)) {
      JsonArray parts = item.getAsJsonArray();
      byte[][] tuple = new byte[parts.size()][];
      for (int index = 0; index < tuple.length; index++) {
        tuple[index] = unhex(parts.get(index).getAsString());
      }
      tuples.add(tuple);
    }
    return tuples;
  }

  List<byte[]> byteStrings(String name) {
    return list(name).stream().map(item -> unhex(item.getAsString())).toList();
  }

  long[] numbers(String name) {
    return list(name).stream().mapToLong(JsonElement::getAsLong).toArray();
  }

  Map<String, String> settings(String name) {
    Map<String, String> settings = new LinkedHashMap<>();
    if (has(name)) {
      json.getAsJsonObject(name)
          .entrySet()
          .forEach(entry -> settings.put(entry.getKey(), entry.getValue().getAsString()));
    }
    return settings;
  }
}
